"""Checkpoints of a Session on its own: all state tensors, the step, and texts of the caller, in one safetensors file.

``dslc train`` writes checkpoints that also hold the data position (``runtime/train/checkpoint.py``); this module loads
both kinds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, InputError
from dslc.base.publish import publish_bytes
from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.session.inputs.arrays import as_numpy
from dslc.runtime.session.inputs.check import check_names
from dslc.runtime.session.state import StateTensor
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.mapping import require_fit
from dslc.runtime.weights.notes import of_metadata, to_metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEY: Final = "dslc.session"
_DIGEST: Final = "dslc.session.sha256"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a checkpoint. ``extra`` holds the caller's texts; empty for a checkpoint of ``dslc train``.
    ``notes`` are those of the weights."""

    tensors: Mapping[str, NDArray[Any]]
    step: int
    extra: Mapping[str, str]
    notes: Mapping[str, str]


def checked(table: Mapping[str, StateTensor], tensors: Mapping[str, object]) -> dict[str, NDArray[Any]]:
    """The arrays of a whole state by name. InputError R105 for a name, shape or dtype that differs."""
    check_names("restore", list(tensors), list(table))
    arrays = {n: as_numpy("restore", Tensor(n, t.dtype, t.shape), tensors[n]) for n, t in table.items()}
    for name, array in arrays.items():
        if array.shape != table[name].shape:
            raise InputError(
                "R105",
                f"`{name}` has the shape {list(array.shape)}, expected {table[name]}",
                place=f"restore({name}=...)",
                help="restore a state of this artifact",
            )
    return arrays


def save(
    path: str | os.PathLike[str],
    table: Mapping[str, StateTensor],
    tensors: Mapping[str, NDArray[Any]],
    step: int,
    extra: Mapping[str, str],
    notes: Mapping[str, str],
) -> None:
    """Write a checkpoint, atomically (R402, R405). InputError R105 if ``extra`` has a key or value that is not a
    text."""
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in extra.items()):
        raise InputError(
            "R105", "`extra` contains something that is not a string", place="extra=...", help="give strings"
        )
    text = json.dumps({"step": step, "extra": dict(extra)}, sort_keys=True, ensure_ascii=True)
    metadata = {_KEY: text, _DIGEST: hashlib.sha256(text.encode("ascii")).hexdigest(), **to_metadata(notes)}
    dtypes = {name: tensor.dtype for name, tensor in table.items()}
    publish_bytes(path, tensorfile.encode(tensors, metadata, dtypes))


def load(path: str | os.PathLike[str], table: Mapping[str, StateTensor]) -> Snapshot:
    """Read and verify a checkpoint whose tensors are exactly those of ``table``.

    Raises WeightsMissing R304 if the file is missing, ArtifactError R306 if it is damaged, R305 if the model differs.
    """
    place = os.fspath(path)
    file = tensorfile.read(place)
    if _KEY not in file.metadata:
        return _of_training(place, table)
    text = file.metadata[_KEY]
    have = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if not file.verified or have != file.metadata.get(_DIGEST):
        raise _damaged(place, "a checkpoint without digests, or with wrong ones")
    try:
        data = json.loads(text)
        step, extra = data["step"], data["extra"]
        sound = type(step) is int and 0 <= step < 1 << 63 and all(isinstance(v, str) for v in extra.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(place, "its step cannot be read") from error
    if not sound:
        raise _damaged(place, "its step cannot be read")
    require_fit(place, table, file.tensors)
    return Snapshot(
        {name: file.tensors[name].array() for name in table}, step, extra, of_metadata(file.metadata, place)
    )


def _of_training(place: str, table: Mapping[str, StateTensor]) -> Snapshot:
    from dslc.runtime.train.checkpoint import read_checkpoint

    found = read_checkpoint(Path(place))
    require_fit(place, table, tensorfile.read(place).tensors)
    return Snapshot(found.tensors, found.position.step, {}, found.notes)


def _damaged(place: str, why: str) -> ArtifactError:
    return ArtifactError("R306", why, place=place, help="load an older checkpoint")
