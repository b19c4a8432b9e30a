"""Initial weights from a file of another training, perhaps of another framework and with another head."""

from __future__ import annotations

from collections.abc import Callable

from dslc.base.errors import ArtifactError
from dslc.runtime.config.config import StartConfig
from dslc.runtime.session.state import StateTensor
from dslc.runtime.train.setup import Trainable
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.files import widened

_SHOWN = 8  # names listed in a message
_COUNTER = "num_batches_tracked"  # PyTorch's batchnorm counts its batches; no op here reads the counter


def start_from(start: StartConfig, session: Trainable, notice: Callable[[str], None]) -> None:
    """Copy the tensors of a safetensors file into a session whose weights have their initial values, all or none.

    ``start.map`` renames tensors. f16 and bf16 values are converted to f32. Without ``start.partial``, the file must
    have exactly the tensors of the model. With it, a tensor that is missing or has another shape keeps its initial
    value, which is reported to ``notice``. Raises WeightsMissing R304, ArtifactError R305 and R306.
    """
    assert start.weights is not None
    place = str(start.weights)
    table = session.artifact.header["state"]["tensors"]
    expected = {
        t["name"]: StateTensor(t["name"], t["kind"], t["dtype"], tuple(t["shape"]), 0)
        for t in table
        if t["kind"] != "optimizer"
    }
    file = tensorfile.read(start.weights)
    have = start.map.renamed(file.tensors, place)
    taken, left = {}, []
    for name, tensor in expected.items():
        found = have.get(name)
        array = None if found is None or found.shape != tensor.shape else widened(found, tensor.dtype)
        if array is None:
            left.append(f"{name} ({tensor}; the file has {'none' if found is None else found})")
        else:
            taken[name] = array
    extra = [name for name in have if name not in expected and name.rpartition(".")[2] != _COUNTER]
    if not taken or (not start.partial and (left or extra)):
        parts = [f"not in it: {_listed(left)}"] if left else []
        parts += [f"only in it: {_listed([ascii(name)[1:-1][:80] for name in extra])}"] if extra else []
        raise ArtifactError(
            "R305",
            "the weights to start from do not fit the model; " + "; ".join(parts),
            place=place,
            help="give the names with --map OLD=NEW"
            + ("" if start.partial else ", or load only matching tensors: --partial"),
        )
    for name, array in taken.items():
        session.weights[name] = array
    line = f"started from {place}: {len(taken)} of {len(expected)} tensors"
    if left:
        line += f"; initial values: {_listed(left)}"
    if extra:
        line += f"; not used: {_listed([ascii(name)[1:-1][:80] for name in extra])}"
    notice(line + ("" if file.verified else "; it has no digests, so damage cannot be detected"))


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
