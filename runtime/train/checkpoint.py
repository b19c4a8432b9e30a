"""Checkpoints: one safetensors file each, with all state tensors and the position of the run.

The metadata hold the SHA-256 of every tensor and of the position. A file is written by the publish protocol and read
back before it gets its name. The newest ``keep`` and the best checkpoint remain; older ones are removed only after the
new one is durable. A state with NaN or Inf is never written, and never accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import ArtifactError, DslcError
from dslc.base.json_size import parsed
from dslc.base.publish import publish_bytes
from dslc.runtime.config.yaml import Plain
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import of_metadata, to_metadata

FOLDER: Final = "checkpoints"
_NAME = re.compile(r"step-([0-9]{1,18})\.safetensors\Z")
_KEY: Final = "dslc.position"
_KEY_DIGEST: Final = "dslc.position.sha256"
_LONGEST: Final = 1 << 20  # characters of a position
# Fields that older checkpoints lack, and their values for these.
_LATER: Final[dict[str, Any]] = {"stop_value": None, "stop_stale": 0}


@dataclass(frozen=True)
class Position:
    """The position of a run between two steps, and the values that must be equal for a resume.

    ``step`` steps are done; the next batch is number ``batch`` of ``epoch``. ``means`` are the running sums of the
    epoch, as ``float.hex`` texts, so that they are restored bit for bit. ``config`` holds the values that determine a
    run. ``stop_value`` is the best value that early stopping has seen, ``stop_stale`` the number of evaluations since.
    """

    step: int
    epoch: int
    batch: int
    seed: int
    rows: int
    batch_size: int
    interface: str
    dslc: str
    skipped: int = 0
    best_step: int | None = None
    best_value: str | None = None
    means: Mapping[str, list[Any]] = field(default_factory=dict)
    config: Mapping[str, Plain] = field(default_factory=dict)
    stop_value: str | None = None
    stop_stale: int = 0

    def encode(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=True, allow_nan=False)

    @classmethod
    def decode(cls, text: str) -> Position:
        """Parses the text of ``encode``. ValueError for any other text."""
        data = parsed(text, _LONGEST)
        if isinstance(data, dict):
            data = {**_LATER, **data}
        if not isinstance(data, dict) or set(data) != {f.name for f in fields(cls)}:
            raise ValueError("it does not have the fields of a position")
        numbers = ("step", "epoch", "batch", "seed", "rows", "batch_size", "skipped", "stop_stale")
        counts = [data[name] for name in numbers] + ([] if data["best_step"] is None else [data["best_step"]])
        if any(type(count) is not int or not 0 <= count < 2**63 for count in counts):
            raise ValueError("one of its numbers is out of range")
        if not isinstance(data["interface"], str) or not isinstance(data["dslc"], str):
            raise ValueError("one of its strings is missing")
        if (data["best_step"] is None) != (data["best_value"] is None):
            raise ValueError("its best step and value do not belong together")
        for name in ("best_value", "stop_value"):
            if data[name] is not None:
                _hex_float(data[name])
        if not isinstance(data["config"], dict) or not isinstance(data["means"], dict):
            raise ValueError("one of its tables is missing")
        for entry in data["means"].values():
            if not isinstance(entry, list) or len(entry) != 2 or type(entry[1]) is not int:
                raise ValueError("its running means are malformed")
            _hex_float(entry[0])
        return cls(**data)


def _hex_float(text: object) -> float:
    if not isinstance(text, str):
        raise ValueError("one of its floats is not a string")
    return float.fromhex(text)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, read and verified."""

    path: Path
    tensors: Mapping[str, NDArray[Any]]
    position: Position
    notes: Mapping[str, str] = field(default_factory=dict)


def write_checkpoint(
    path: Path,
    tensors: Mapping[str, NDArray[Any]],
    position: Position,
    dtypes: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write a checkpoint; it is read back before it gets its name. ``dtypes`` names the dtypes that numpy lacks (bf16).
    ``notes`` are those of the weights.

    Raises ResourceError R402 (not written) or R405 (written, perhaps not durable), ArtifactError R306 if the content
    read back differs from the content written. Failpoints: ``ckpt.write``, ``ckpt.rename`` and the others of publish.
    """
    text = position.encode()
    metadata = {_KEY: text, _KEY_DIGEST: hashlib.sha256(text.encode()).hexdigest(), **to_metadata(notes or {})}
    data = tensorfile.encode(tensors, metadata, dtypes)
    publish_bytes(path, data, point="ckpt", verify=read_checkpoint)


def read_position(path: Path) -> Position:
    """The position of a checkpoint; reads and verifies no tensor. Raises WeightsMissing R304, ArtifactError R306."""
    metadata = tensorfile.read_metadata(path)
    text = metadata.get(_KEY)
    if text is None:
        raise _damaged(path, "it has no position or no digests")
    return _position(path, text, metadata)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint. Raises WeightsMissing R304, ArtifactError R306, OutOfMemory R401."""
    file = tensorfile.read(path)
    text = file.metadata.get(_KEY)
    if text is None or (not file.verified and file.tensors):
        raise _damaged(path, "it has no position or no digests")
    position = _position(path, text, file.metadata)
    try:
        tensors = {name: tensor.array() for name, tensor in file.tensors.items()}
    except KeyError as error:
        raise _damaged(path, f"it holds a tensor of the dtype {error}") from error
    return Checkpoint(path, tensors, position, of_metadata(file.metadata, str(path)))


def _position(path: Path, text: str, metadata: Mapping[str, str]) -> Position:
    if hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest() != metadata.get(_KEY_DIGEST):
        raise _damaged(path, "its position does not match its digest")
    try:
        return Position.decode(text)
    except (ValueError, OverflowError) as error:
        raise _damaged(path, f"its position is malformed: {error}") from error


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError("R306", why, place=str(path), help="resume from an older checkpoint, or train again")


def first_nonfinite(
    tensors: Mapping[str, NDArray[Any]], order: Iterable[str] = (), dtypes: Mapping[str, str] | None = None
) -> str | None:
    """The first tensor with a NaN or Inf, those of ``order`` before the others; None if all are finite."""
    for name in dict.fromkeys((*order, *tensors)):
        array = tensors.get(name)
        if array is None:
            continue
        if (dtypes or {}).get(name) == "bf16":
            finite = bool(((array & 0x7F80) != 0x7F80).all())
        else:
            finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        if not finite:
            return name
    return None


class CheckpointStore:
    """The checkpoints of one run's folder."""

    def __init__(self, run: Path, keep: int, dtypes: Mapping[str, str] | None = None) -> None:
        self.folder = run / FOLDER
        self.keep = keep
        self.dtypes = dtypes

    def steps(self) -> list[int]:
        """The steps of all checkpoints, newest first (by step, never by time)."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.match(entry.name) for entry in self.folder.iterdir())
        return sorted((int(name[1]) for name in found if name), reverse=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:010d}.safetensors"

    def save(
        self, tensors: Mapping[str, NDArray[Any]], position: Position, notes: Mapping[str, str] | None = None
    ) -> Path:
        """Write the checkpoint of a position, then remove superseded ones. Raises the errors of write_checkpoint."""
        path = self.path(position.step)
        self.folder.mkdir(exist_ok=True)
        write_checkpoint(path, tensors, position, self.dtypes, notes)
        # A checkpoint of a later step remains from a run that was resumed at an earlier step.
        steps = [step for step in self.steps() if step <= position.step]
        staying = {*steps[: self.keep], position.best_step}
        for step in self.steps():
            if step not in staying:
                self.path(step).unlink(missing_ok=True)
        return path

    def newest(self, accepts: Callable[[Checkpoint], str | None], warn: Callable[[str], None]) -> Checkpoint:
        """The newest checkpoint that verifies, is finite, and that ``accepts`` returns None for (else the reason).

        ``warn`` gets a message for each one that is passed over. ArtifactError R307 if none is left.
        """
        why = "there is none"
        for step in self.steps():
            path = self.path(step)
            try:
                found = read_checkpoint(path)
            except DslcError as error:
                why = f"{path.name}: {error.message}"
            else:
                bad = first_nonfinite(found.tensors, dtypes=self.dtypes)
                refused = f"`{bad}` is not finite" if bad else accepts(found)
                if refused is None:
                    return found
                why = f"{path.name}: {refused}"
            warn(f"skipped a checkpoint: {why}")
        raise ArtifactError(
            "R307",
            f"no checkpoint can be used: {why}",
            place=str(self.folder),
            help="train from scratch, without --resume",
        )
