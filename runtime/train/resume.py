"""Decides whether a run can resume from a checkpoint, and restores it."""

from __future__ import annotations

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.config.config import Config
from dslc.runtime.train.checkpoint import Checkpoint
from dslc.runtime.train.setup import Plan, Trainable


def refusal(config: Config, plan: Plan, interface: str, found: Checkpoint) -> str | None:
    """Why a run cannot resume from a checkpoint; None if it can."""
    there = found.position
    if there.interface != interface:
        return "it belongs to a model with another interface"
    for name, old, new in (
        ("train.seed", there.seed, config.train.seed),
        ("the number of rows", there.rows, plan.train.rows),
        ("the batch size", there.batch_size, plan.batch),
    ):
        if old != new:
            return f"{name} was {old} and is now {new}, so the order of the data would change"
    if (there.epoch, there.batch) != divmod(there.step, plan.batches):
        return f"{there.step} steps are not epoch {there.epoch}, batch {there.batch}"
    return None


def install(session: Trainable, found: Checkpoint) -> None:
    """Restore the session and the notes of its weights. ArtifactError R307 if the model or optimizer differs."""
    try:
        session.restore(found.tensors, found.position.step)
        session.weights.notes = found.notes
    except InputError as error:
        raise ArtifactError(
            "R307",
            f"the checkpoint belongs to another model or optimizer: {error.message}",
            place=str(found.path),
            help="build the model of that run, or train from scratch without --resume",
        ) from error
