"""Which weights are published: ``build/NAME/NAME.safetensors`` changes for better weights, or on request.

Publishing replaces the file by a copy of the run's own ``weights.safetensors``, whose score is in the file itself, in
one atomic step. The weights that it replaces are kept before, as ``NAME.previous.safetensors``, so they exist at every
moment.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.errors import ArtifactError, DslcError, ResourceError, WeightsMissing
from dslc.base.filelock import FileLock
from dslc.base.publish import publish_bytes
from dslc.base.within import require_within
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.header_schema import WEIGHTS
from dslc.runtime.history.folders import StoredRun
from dslc.runtime.history.score import Score, score_of
from dslc.runtime.train.checkpoint import FOLDER as CHECKPOINTS
from dslc.runtime.train.checkpoint import CheckpointStore, read_checkpoint
from dslc.runtime.train.run_weights import weights_file
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import RUN, to_metadata
from dslc.runtime.weights.slots import slots

WEIGHTS_NAME: Final = "weights.safetensors"
_LOCK: Final = ".dslc-publish"
_WAIT: Final = 30.0  # seconds for another process that publishes here


@dataclass(frozen=True)
class Publication:
    """``refused``: why the published weights stay as they are; None if they are now those of the run. ``previous``: the
    file that holds the weights before, if they were replaced and kept."""

    path: Path
    refused: str | None = None
    previous: Path | None = None


def offer(weights: Path, target: Path, warn: Callable[[str], None], *, always: bool = False) -> Publication:
    """Publish a run's weights as ``target`` if nothing is published there, if they are better, or with ``always``.

    Raises ResourceError R402 if ``target`` cannot be written and R404 if another process publishes there for long,
    ArtifactError R306 if ``weights`` cannot be read.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(
            "R402",
            f"the folder cannot be made: {error.strerror}",
            place=str(target.parent),
            help="make it writable, then publish with `dslc publish RUN`",
        ) from error
    with FileLock(target.parent / _LOCK, what="publishing", timeout=_WAIT).scope() as scope, scope:
        score, new = score_of(weights), _contents(weights)
        if new is None:
            raise ArtifactError("R306", "it is not a regular file", place=str(weights), help="train again")
        try:
            former = _contents(target)
            refused = None if former is None or former == new or always else _refused(score, weights, target)
        except (DslcError, OSError) as error:
            why = error.message if isinstance(error, DslcError) else str(error.strerror)
            if not always:
                return Publication(target, f"the published weights cannot be read ({why})")
            warn(f"the previous weights are not kept: {why}")
            former, refused = None, None
        if refused is not None or former == new:
            return Publication(target, refused)
        previous = None if former is None else _kept(target, former, warn)
        publish_bytes(target, new, point="weights")
        return Publication(target, None, previous)


def publish_run(
    run: StoredRun, target: Path, root: Path, warn: Callable[[str], None], *, always: bool = True
) -> tuple[Score | None, Publication]:
    """Publish the weights of a run as ``target``, a file below ``root``, whatever is there; without ``always`` only if
    ``offer`` does. Those of a run that did not end are those of a checkpoint; ``warn`` says of which.

    Raises WeightsMissing R304 if the run has no weights, ArtifactError R305 if they do not fit the artifact next to
    ``target``, R306 if they are damaged, R307 if no checkpoint can be used, and the errors of ``offer``.
    """
    weights = run.folder / WEIGHTS_NAME
    if not weights.exists() and CheckpointStore(run.folder, 0).steps():
        require_within(run.folder / CHECKPOINTS, run.folder, "remove the link")
        weights = _from_checkpoint(run, warn)
    if not weights.exists():
        raise WeightsMissing(
            "R304",
            f"run {run.name} has no weights to publish; its state is `{run.state}`",
            place=str(weights),
            help=f"complete it: `dslc train --resume {run.name}`",
        )
    require_within(target.parent, root, "remove the link")
    head, _ = tensorfile.read_head(weights)  # verifies the digests
    artifact = target.with_suffix(".dslc")
    if artifact.exists():
        state = read_artifact(artifact).header["state"]["tensors"]
        expected = {t["name"]: (t["dtype"], tuple(t["shape"])) for t in state if t["kind"] in WEIGHTS}
        have = {name: (entry.dtype, entry.shape) for name, entry in head.entries.items()}
        if have != expected:
            names = sorted(name for name in {*have, *expected} if have.get(name) != expected.get(name))
            raise ArtifactError(
                "R305",
                f"the weights of run {run.name} do not fit {artifact}: {', '.join(names[:4])}",
                place=str(weights),
                help=f"build the model of that run: its arguments are in {run.folder / 'config.json'}",
            )
    return score_of(weights), offer(weights, target, warn, always=always)


def _from_checkpoint(run: StoredRun, warn: Callable[[str], None]) -> Path:
    """Write the weights of the run's best checkpoint, else of its newest one, as ``weights-STEP.safetensors`` of its
    folder. Their score names no evaluation data, so it compares with no other score."""
    found = read_checkpoint(weights_file(run.folder, warn))
    there = found.position
    entries = tensorfile.read_head(found.path)[0].entries
    left_out = slots(found.tensors)
    tensors = {name: array for name, array in found.tensors.items() if name not in left_out}
    best = run.best
    known = best is not None and there.best_value is not None and there.best_step == there.step
    metric = best[0] if best is not None and known else "loss"
    value = float.fromhex(there.best_value) if known and there.best_value is not None else None
    score = Score(run.name, there.step, metric, metric != "loss", value, "")
    metadata = to_metadata({**found.notes, RUN: score.encode()})
    path = run.folder / f"weights-{there.step}.safetensors"
    publish_bytes(path, tensorfile.encode(tensors, metadata, {name: entries[name].dtype for name in tensors}))
    return path


def _refused(score: Score | None, weights: Path, target: Path) -> str | None:
    there = score_of(target)
    if there is None:
        why: str | None = "it is not known how good the published weights are"
    else:
        why = "it is not known how good they are" if score is None else score.worse_because(there)
    if why is not None and _shapes(weights) != _shapes(target):
        why += ", whose tensors do not fit the model as it is now"
    return why


def _shapes(path: Path) -> dict[str, str]:
    return {name: str(entry) for name, entry in tensorfile.read_head(path)[0].entries.items()}


def _kept(target: Path, former: bytes, warn: Callable[[str], None]) -> Path | None:
    previous = target.with_suffix(f".previous{target.suffix}")
    try:
        publish_bytes(previous, former, point="previous")
    except DslcError as error:
        warn(f"the previous weights are not kept: {error.message}")
        return None
    return previous


def _contents(path: Path) -> bytes | None:
    """A file's bytes; None if there is no regular file. A link is not followed: its target would count as weights."""
    try:
        return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else None
    except FileNotFoundError:
        return None
