"""The folder of a run: ``runs/NAME``, or ``runs/NAME-2`` and so on if earlier runs exist.

A fresh run never changes an earlier one: it uses ``runs/NAME`` if that has no checkpoint, else the next number.
``--resume`` continues the highest number that has a checkpoint, ``--resume RUN`` the named run. If a later run was
killed before its first checkpoint, ``--resume`` starts that one again. A lock keeps other processes out of the folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dslc.base.errors import ArtifactError, ResourceError
from dslc.base.filelock import FileLock
from dslc.base.within import require_within
from dslc.runtime.sinks.delivered import FOLDER as SINKS
from dslc.runtime.sinks.tensorboard import FOLDER as EVENTS
from dslc.runtime.train.checkpoint import FOLDER, CheckpointStore

LOCK_NAME: Final = ".dslc-run"
RECORD_NAME: Final = "run.json"  # what was run and how it went; written when a run begins
SWEEP_NAME: Final = "sweep.json"  # the state of a sweep, in the folder that holds the folders of its trials


def choose_run(base: Path, *, resume: bool | str, root: Path | None = None) -> Path:
    """The folder of a run with the configured folder ``base``; created if needed. It may not lead out of ``root``.

    ``resume``: the name of the run to continue, or True for the highest number. Raises ArtifactError R307 if there is
    nothing to resume, ResourceError R402 if it cannot be created, R403 if it, or
    a folder in it, is a link that leads out.
    """
    folder = _chosen(base, resume)
    if root is not None:
        require_within(folder, root, "remove the link, or name the folder: --set save.dir=FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(
            "R402", f"the folder of the run cannot be made: {error.strerror}", place=str(folder), help="set save.dir"
        ) from error
    for name in (FOLDER, EVENTS, SINKS):  # no run creates links there
        require_within(folder / name, root or folder, "remove the link; set save.dir to save elsewhere")
    return folder


def _chosen(base: Path, resume: bool | str) -> Path:
    if isinstance(resume, str):
        folder = base.parent / resume
        if not CheckpointStore(folder, 2).steps():
            near = sorted(found.name for found in _numbered(base).values() if CheckpointStore(found, 2).steps())
            raise ArtifactError(
                "R307",
                f"run `{resume[:80]}` has no checkpoint to resume from",
                place=str(base.parent),
                help=f"runs with checkpoints here: {', '.join(near) or 'none'}",
            )
        return folder
    used = {number: folder for number, folder in _numbered(base).items() if CheckpointStore(folder, 2).steps()}
    if resume:
        if not used:
            raise ArtifactError(
                "R307", "there is no checkpoint to resume from", place=str(base), help="train without --resume first"
            )
        return used[max(used)]
    number = max(used, default=0) + 1
    return base if number == 1 else base.with_name(f"{base.name}-{number}")


def starts_again(base: Path) -> Path | None:
    """The folder of the newest run with the configured folder ``base`` if that run ended before its first checkpoint:
    a run without ``resume`` uses it. None if the newest run has a checkpoint, or if there is no run."""
    runs = _numbered(base)
    newest = runs[max(runs)] if runs else None
    return None if newest is None or CheckpointStore(newest, 2).steps() or _chosen(base, False) != newest else newest


def label(folder: Path) -> str:
    """The name of a run: its folder, with the folder of its sweep if it is a trial of one."""
    above = folder.parent
    return f"{above.name}/{folder.name}" if (above / SWEEP_NAME).exists() else folder.name


def run_lock(folder: Path) -> FileLock:
    """The lock of a run; entering it raises ResourceError R404 if another training process holds it."""
    return FileLock(folder / LOCK_NAME, what="training")


def _numbered(base: Path) -> dict[int, Path]:
    """The existing folders: ``base`` as number 1 and ``base-N`` as N."""
    found = {1: base} if base.is_dir() else {}
    pattern = re.compile(re.escape(base.name) + r"-([1-9][0-9]{0,8})\Z")
    if base.parent.is_dir():
        for entry in base.parent.iterdir():
            name = pattern.match(entry.name)
            if name and int(name[1]) > 1 and entry.is_dir():
                found[int(name[1])] = entry
    return found
