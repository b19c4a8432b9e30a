"""Joins the plan of a sweep with what an earlier process has done of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError, InputError, ResourceError
from dslc.base.within import require_within
from dslc.runtime.sweep.plan import SweepPlan
from dslc.runtime.sweep.state import FAILED, WAITING, Entry, State, read_state
from dslc.runtime.train.rundir import SWEEP_NAME

_SOURCE: Final = "the text of the model"
_SHOWN: Final = 6  # differences in a message
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def choose_folder(plan: SweepPlan, name: str, *, fresh: bool) -> Path:
    """The folder of a sweep, which is created: the newest of ``NAME``, ``NAME-2`` and so on, or with ``fresh`` a new
    one. InputError R105 for a name that is none; ResourceError R402, R403."""
    if _NAME.fullmatch(name) is None:
        help = "use letters, digits, `_`, `-` and `.`"
        raise InputError("R105", f"`{name[:60]}` cannot be the name of a sweep", place="--name", help=help)
    base = plan.base.save.dir.parent / name
    number, newest = 1, None
    while os.path.lexists(folder := base if number == 1 else base.with_name(f"{name}-{number}")):
        if _empty(folder):  # a sweep was killed before it wrote its state
            newest = None
            break
        newest = folder if os.path.lexists(folder / SWEEP_NAME) else newest
        number += 1
    chosen = folder if fresh or newest is None else newest
    if plan.base.save.root is not None:
        require_within(chosen, plan.base.save.root, "remove the link, or name the folder: --set save.dir=FOLDER")
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(
            "R402", f"the folder of the sweep cannot be made: {error.strerror}", place=str(chosen), help="set save.dir"
        ) from error
    return chosen


def _empty(folder: Path) -> bool:
    """True for a folder that holds nothing, or only temporary files."""
    try:
        return all(name.startswith(".dslc") for name in os.listdir(folder))
    except OSError:
        return False


def joined(plan: SweepPlan, folder: Path, source: str, *, allow_changes: bool, retry: bool) -> tuple[State, list[str]]:
    """The state to go on with, not written yet, and the changes since the earlier process as texts.

    ``source``: the digest of the models' texts. Finished trials are kept if they are in the plan. ``retry``: failed
    ones wait again. Raises ArtifactError R307 if the earlier sweep is damaged, or if it tried something else and
    ``allow_changes`` does not say so.
    """
    of = json.loads(json.dumps({**plan.described(), _SOURCE: source}))  # as it is read from a file
    former = read_state(folder)
    if former is None:
        return _filled(State(of), plan, []), []
    changed = _differences(former.of, of)
    fewer = plan.count < len(former.entries) and not changed
    if fewer:
        changed = [f"the number of trials was {len(former.entries)} and is now {plan.count}"]
    if changed and not allow_changes:
        shown = ", ".join(changed[:_SHOWN]) + (f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else "")
        raise ArtifactError(
            "R307",
            f"the sweep was started with other values: {shown}",
            place=str(folder),
            help="`dslc sweep --fresh` starts another one; --allow-changes goes on, and keeps trials that are in both",
        )
    if former.of.get(_SOURCE) != source:
        former.entries.clear()
    for entry in former.entries:
        if not entry.done or (retry and entry.state == FAILED):
            entry.state, entry.error, entry.result = WAITING, None, None
    return _filled(State(of, [], former.next), plan, former.entries), changed


def _filled(state: State, plan: SweepPlan, former: list[Entry]) -> State:
    """The trials of the plan, in its order; those that were known keep their folders."""
    if plan.method == "optuna":
        state.entries = [entry for entry in former if _belongs(plan, entry)][: plan.count]
        return state
    known = {entry.key: entry for entry in former}
    for trial in plan.trials:
        entry = known.pop(trial.key, None)
        if entry is None:
            state.add(trial.key, trial.values)
        else:
            entry.values = trial.values
            state.entries.append(entry)
    return state


def _belongs(plan: SweepPlan, entry: Entry) -> bool:
    """True if the plan could have chosen the values of a stored trial, and gives the same configuration for them."""
    axes = {axis.key: axis for axis in plan.base.sweep.space.axes}
    if entry.values.keys() != axes.keys():
        return False
    found = {key: axes[key].matching(value) for key, value in entry.values.items()}
    values = {key: value for key, value in found.items() if value is not None}
    return len(values) == len(found) and plan.trial(values).key == entry.key


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    found = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            if name == _SOURCE:
                found.append(f"{name} has changed")
            else:
                found.append(f"{name} was {_text(old.get(name))} and is now {_text(new.get(name))}")
    return found


def _text(value: object) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
