"""Initial weights from a file of another training, perhaps of another framework and with another head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dslc.runtime.artifact.header_schema import WEIGHTS
from dslc.runtime.config.config import StartConfig
from dslc.runtime.session.state import StateTensor
from dslc.runtime.train.run_weights import weights_file
from dslc.runtime.train.trainable import Trainable
from dslc.runtime.weights.matching import Terms, read_matched, require_match
from dslc.runtime.weights.table import data, lines


def require_start(start: StartConfig, weights: Mapping[str, StateTensor]) -> None:
    """Match the file to start from, if there is one, with the weights that a model will have before it is built. No
    value is read. Raises the errors of ``start_from``, but for damaged values."""
    if start.weights is not None:
        path = weights_file(start.weights, lambda line: None)
        require_match(path, weights, _terms(start))


def _terms(start: StartConfig) -> Terms:
    return Terms(start.map, start.replace, start.partial, start.least)


def start_from(start: StartConfig, session: Trainable, notice: Callable[[str], None]) -> dict[str, Any]:
    """Copy the tensors of a safetensors file into a session whose weights have their initial values, all or none.

    ``start.map`` renames and rearranges tensors. f16 and bf16 values are converted to f32. The file must have exactly
    the tensors of the model, but those of ``start.replace``; with ``start.partial``, a tensor that is missing or has
    another shape keeps its initial value. ``start.weights`` may be a checkpoint, or the folder of a run. ``notice``
    gets a table of what became of each tensor, which is also returned as data. Raises WeightsMissing R304,
    ArtifactError R305, R306 and R307.
    """
    assert start.weights is not None
    path = weights_file(start.weights, notice)
    place = str(path)
    expected = {
        t["name"]: StateTensor(t["name"], t["kind"], t["dtype"], tuple(t["shape"]), 0)
        for t in session.artifact.header["state"]["tensors"]
        if t["kind"] in WEIGHTS
    }
    file, matching, arrays = read_matched(path, expected, _terms(start))
    for name, array in arrays.items():
        session.weights[name] = array
    unverified = "" if file.verified else "; it has no digests, so damage cannot be detected"
    notice(f"started from {place}: {len(arrays)} of {len(expected)} tensors{unverified}")
    for line in lines(matching):
        notice("  " + line)
    return {"weights": place, "tensors": data(matching.rows)}
