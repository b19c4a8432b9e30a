"""Saves the state of a run: checkpoints, the handling of failed ones, and the run's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dslc.base.errors import DslcError, NumericError, ResourceError
from dslc.runtime.config.policies import NanPolicy
from dslc.runtime.history.publication import WEIGHTS_NAME
from dslc.runtime.history.score import Score
from dslc.runtime.train.checkpoint import Checkpoint, CheckpointStore, Position, first_nonfinite, read_checkpoint
from dslc.runtime.train.progress import Reporter
from dslc.runtime.train.trainable import Trainable
from dslc.runtime.weights.notes import RUN

_FAILURES: Final = 3  # failures in a row that stop training


class Saver:
    """Writes a session's state. ``last`` is the newest checkpoint known to be good."""

    def __init__(self, session: Trainable, folder: Path, keep: int, on_nan: NanPolicy, report: Reporter) -> None:
        state = session.artifact.header["state"]
        self._dtypes: dict[str, str] = {t["name"]: t["dtype"] for t in state["tensors"]}
        self._forward_order: list[str] = list(state["forward_order"])
        self._session = session
        self._on_nan = on_nan
        self._report = report
        self._step: int | None = None  # of ``last``
        self._failures = 0
        self.store = CheckpointStore(folder, keep, self._dtypes)
        self.last: Path | None = None

    def found(self, checkpoint: Checkpoint) -> None:
        """Record that the session's state came from this checkpoint."""
        self.last, self._step = checkpoint.path, checkpoint.position.step

    def save(self, position: Position, *, must: bool) -> None:
        """Write a checkpoint unless it exists. A failure is reported; the third in a row, or any with ``must``, is
        raised.

        Raises ResourceError R402; NumericError R501 for a state that is not finite, under the policy ``stop``.
        """
        if self._step == position.step:
            return
        tensors = self._session.state_tensors()
        bad = first_nonfinite(tensors, self._forward_order, self._dtypes)
        if bad is not None:
            self._not_finite(bad, position.step)
            return
        try:
            path = self.store.save(tensors, position, self._session.weights.notes)
        except (DslcError, OSError) as error:
            if not (isinstance(error, DslcError) and error.code == "R405"):
                self._failed(error, position.step, must)
                return
            path = self.store.path(position.step)
            self._report.warn(f"the checkpoint {path} is written, but perhaps not durable")
        self.last, self._step, self._failures = path, position.step, 0

    def _not_finite(self, name: str, step: int) -> None:
        cause = f"`{name}` is not finite after {step} steps, so no checkpoint was written"
        if self._on_nan.skip:
            self._report.warn(cause)
            return
        raise NumericError("R501", cause, place=name, help="resume from the last checkpoint with a lower learning rate")

    def _failed(self, error: DslcError | OSError, step: int, must: bool) -> None:
        self._failures += 1
        why = error.message if isinstance(error, DslcError) else str(error)
        self._report.warn(f"no checkpoint after {step} steps ({self._failures} in a row failed): {why}")
        if must or self._failures >= _FAILURES:
            raise ResourceError(
                "R402",
                f"the checkpoint after {step} steps cannot be written: {why}",
                place=str(self.store.folder),
                help="free some space, then continue with --resume",
            ) from error

    def best(self, step: int) -> Checkpoint | None:
        """The best checkpoint; None, with a warning, if it cannot be read."""
        try:
            return read_checkpoint(self.store.path(step))
        except DslcError as error:
            self._report.warn(f"the best checkpoint cannot be read, so the last weights are published: {error.message}")
            return None

    def keep(self, score: Score) -> Path:
        """Save the session's weights, with their score, in the run's folder. ResourceError R402."""
        path = self.store.folder.parent / WEIGHTS_NAME
        self._session.weights.save(path, {RUN: score.encode()})
        return path
