"""``dslc train`` as one of several processes, or as the one that starts them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from dslc.base.errors import DslcWarning, RanksError
from dslc.runtime.ranks.contract import Place, lost_variables, place_of

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.config.config import Config
    from dslc.runtime.ranks.group import Group
    from dslc.runtime.ranks.shared import Leader
    from dslc.runtime.session.session import Session
    from dslc.runtime.train.setup import Plan


def place(processes: int | None, gpus: int | None) -> Place | None:
    """This process's place among several; None if it is alone, or if it is to start ``processes`` or ``gpus`` of
    them."""
    found = place_of(os.environ)
    lost = lost_variables(os.environ) if processes is None and gpus is None else ()
    if lost:
        said = f"{' and '.join(lost)} {'is' if len(lost) == 1 else 'are'} set, but not RANK and WORLD_SIZE"
        help = "set both in each process to train together; to train alone, unset the others"
        warnings.warn(DslcWarning("W012", f"{said}: this process trains alone; {help}"), stacklevel=2)
    for option, count in (("--processes", processes), ("--gpus", gpus)):
        if found is not None and count is not None and count != found.size:
            raise RanksError("R601", f"{option} is {count}, and WORLD_SIZE {found.size}", place=option,
                             help=f"a launcher sets WORLD_SIZE: leave out {option}")  # fmt: skip
    return found


def device_of(place: Place | None, device: str, gpus: int | None) -> str:
    """The device of this process: each process of a host has a GPU of its own, counted by its rank there."""
    if gpus is not None and device == "auto":
        device = "gpu"
    if place is None or device == "cpu":
        return device
    if ":" in device:
        raise RanksError("R601", f"--device {device} is one GPU for {place.size} processes", place="--device",
                         help="--device gpu gives each process one of its own")  # fmt: skip
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    alone = bool(visible.strip()) and "," not in visible  # the launcher shows each process its own
    return f"{device}:{0 if alone else place.local_rank}"


def start(processes: int) -> int:
    """Run this command as so many processes; returns the exit code."""
    from dslc.runtime.ranks.launch import launch

    return launch([sys.executable, "-P", "-m", "dslc", *sys.argv[1:]], processes, os.environ)


@contextmanager
def joined(place: Place | None) -> Iterator[Group | None]:
    """The group of a place, when all have come; None for a process that is alone."""
    if place is None:
        yield None
        return
    from dslc.runtime.ranks.group import Group
    from dslc.runtime.ranks.launch import end_with_launcher

    end_with_launcher(os.environ)
    with Group(place) as group:
        yield group


@contextmanager
def console_of(group: Group | None, console: TextIO) -> Iterator[TextIO]:
    """Where a process shows progress: only rank 0 does."""
    if group is None or group.rank == 0:
        yield console
        return
    with open(os.devnull, "w") as nowhere:
        yield nowhere


def decided(group: Group | None, decide: Callable[[], bool | str]) -> bool | str:
    """Which run goes on, as rank 0 finds it: runs may have no folder where the others are."""
    if group is None:
        return decide()
    if group.rank > 0:
        run = group.commanded()["run"]
        assert isinstance(run, bool | str)
        return run
    run = decide()
    group.command({"do": "continue", "run": run})
    return run


def built(group: Group | None, build: Callable[[], Artifact]) -> Artifact:
    """The artifact, which rank 0 builds if it must; the others wait and read it."""
    if group is None:
        return build()
    if group.rank == 0:
        artifact = build()
        group.command({"do": "load"})
        return artifact
    group.commanded()
    return build()


def shared(config: Config, session: Session, plan: Plan, group: Group) -> tuple[Leader, Plan]:
    """The session and the plan of a process that trains with others. RanksError R601, R602."""
    from dslc.runtime.ranks.shared import Leader, facts, require_shareable

    require_shareable(config)
    group.agree(facts(config, session, plan))
    session.join(group)
    return Leader(session, group), plan.of_part(group.rank, group.size)
