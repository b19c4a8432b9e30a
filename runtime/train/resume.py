"""Decides whether a run can resume from a checkpoint, and restores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.runtime.config.config import Config, determines_results
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.history.folders import run_in
from dslc.runtime.history.record import recorded_values
from dslc.runtime.train.checkpoint import Checkpoint, CheckpointStore, Position, read_position
from dslc.runtime.train.fitted_data import require_same
from dslc.runtime.train.rundir import choose_run, label, starts_again
from dslc.runtime.train.setup import Plan, plan_run
from dslc.runtime.train.trainable import Declared, Trainable
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import of_metadata


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


def continued(
    config: Config, resume: bool | str, notice: Callable[[str], None], *, allow_changes: bool = False
) -> bool | str:
    """What ``resume`` is to be: False if the newest run was asked for and ended before its first checkpoint, so that
    there is nothing to restore. Such a run starts again with the same bits, and ``notice`` gets a line that says so. A
    supervisor can therefore repeat ``dslc train --resume`` whenever a run was killed that has a folder. ArtifactError
    R307 if the configuration has changed since that run began, unless it may."""
    again = starts_again(config.save.dir) if resume is True else None
    if again is None:
        return resume
    if old := run_in(again).config:
        since = f"run {label(again)} began, which has no checkpoint"
        _require_same(_start(old), _start(recorded_values(config)), since, again, allow_changes, notice)
    notice(f"run {label(again)} ended before its first checkpoint: it starts again")
    return False


def _start(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the values of a configuration, those on which a run from its first step depends."""
    return {
        name: value
        for name, value in values.items()
        if (determines_results(name) or name.startswith("start.")) and value not in ([], {})
    }


def compare(
    config: Config, old: Mapping[str, Any], folder: Path, allow_changes: bool, warn: Callable[[str], None]
) -> None:
    """Tell or refuse values that differ from the ``old`` ones of a checkpoint: R307 unless they are allowed. Only
    ``train.epochs`` may always differ."""
    new = config.training_values()
    if "model" not in old:  # a checkpoint from before builds were compared
        new = {name: value for name, value in new.items() if name != "model" and not name.startswith("build.")}
    _require_same(old, new, "the checkpoint", folder, allow_changes, warn)


def _require_same(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    since: str,
    folder: Path,
    allow_changes: bool,
    warn: Callable[[str], None],
) -> None:
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return
    said = ", ".join(f"{name} was {old.get(name)} and is now {new.get(name)}" for name in changed)
    if not allow_changes and changed != ["train.epochs"]:
        raise ArtifactError(
            "R307",
            f"the configuration changed since {since}: {said}",
            place=str(folder),
            help="resume with the old values; --allow-changes goes on with the new ones; or train without --resume",
        )
    warn(f"the configuration changed since {since}: {said}")


def plan_before_build(
    config: Config, model: Declared, notice: Callable[[str], None], *, resume: bool | str, replay: bool
) -> Plan:
    """The plan of a run, made before its model is built. ``resume``: the run is there, the newest or the named
    one; ``replay``: it may be there.

    Raises the errors of ``plan_run``, ``fitted_of_run`` and ``require_longer``."""
    fitted = None
    if resume or replay:
        try:
            fitted = fitted_of_run(config, resume or True)
        except ArtifactError:
            if resume:
                raise
    plan = plan_run(config, model, notice, fitted)
    if resume:
        _require_longer_than_newest(config, plan, resume)
    return plan


def _require_longer_than_newest(config: Config, plan: Plan, run: bool | str) -> None:
    """``require_longer`` for the newest checkpoint that can be read and continued."""
    folder = choose_run(config.save.dir, root=config.save.root, resume=run)
    store = CheckpointStore(folder, config.save.keep)
    for step in store.steps():
        try:
            there = read_position(store.path(step))
        except DslcError:
            continue  # the run passes over it, too, and says why
        if there.rows == plan.train.rows and there.batch_size == plan.batch:
            require_longer(config, plan, there, folder)
        return


def require_longer(config: Config, plan: Plan, there: Position, folder: Path) -> None:
    """Raise ArtifactError R307 for a run that has done more steps than it shall have at its end."""
    if there.step > plan.total:
        done = -(-there.step // plan.batches)
        raise ArtifactError(
            "R307",
            f"the run has done {there.step} steps, and {config.train.epochs} epochs are {plan.total}",
            place=str(folder),
            help=f"train.epochs (--epochs) counts from the start of the run: write more than {done}, "
            "or train without --resume",
        )


def fitted_of_run(config: Config, run: bool | str = True) -> Fitted | None:
    """What the run to resume fitted at its start, from its newest readable checkpoint; None if there is none.

    Raises ArtifactError R307 if there is no such run, DataError R104 if the configuration describes other columns.
    """
    folder = choose_run(config.save.dir, root=config.save.root, resume=run)
    store = CheckpointStore(folder, config.save.keep)
    for step in store.steps():
        path = str(store.path(step))
        try:
            found = Fitted.of_notes(of_metadata(tensorfile.read_metadata(path), path), path)
        except DslcError:
            continue  # the run passes over it, too, and says why
        require_same(config.data.columns, found, path)
        return found
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
