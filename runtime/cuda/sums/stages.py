"""What goes on between the stages of a plan: its bulks, or all of it if it is not cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dslc.runtime.cuda.binding import Group


class Stages(Protocol):
    """What goes on between the stages of a plan. ``count``: of stages; ``before``: the first work of a stage is about
    to be submitted; ``after``: all of it has been."""

    @property
    def count(self) -> int: ...
    def before(self, stage: int) -> None: ...
    def after(self, stage: int) -> None: ...


def in_turn(groups: Sequence[Group], stages: Stages | None) -> Iterator[tuple[int, Group]]:
    """Each group with its number, when it is to be submitted; between them ``stages`` is told what follows. The bulks
    of a plan are its stages, if there are as many, else its work is not cut: it needs all that comes before, and is
    followed by all that comes after."""
    if stages is None:
        yield from enumerate(groups)
        return
    cut = max((last for group in groups for last in group.stages), default=0) == stages.count - 1
    begun = ended = 0
    for number, group in enumerate(groups):
        first, last = group.stages if cut else (0, stages.count - 1)
        for stage in range(begun, last + 1):
            for done in range(ended, min(first, stage)):
                stages.after(done)
                ended += 1
            stages.before(stage)
            begun += 1
        for done in range(ended, first):
            stages.after(done)
            ended += 1
        yield number, group
    for stage in range(begun, stages.count):
        stages.before(stage)
    for done in range(ended, stages.count):
        stages.after(done)
