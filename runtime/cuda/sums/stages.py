"""Calls between the stages of a plan, which are its bulks, or the whole plan if it has another number of bulks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dslc.runtime.cuda.binding import Group


class Stages(Protocol):
    """Calls between the stages of a plan. ``count``: the number of stages; ``before``: the first work of a stage is
    about to be submitted; ``after``: all work of a stage has been submitted."""

    @property
    def count(self) -> int: ...
    def before(self, stage: int) -> None: ...
    def after(self, stage: int) -> None: ...


def in_turn(groups: Sequence[Group], stages: Stages | None) -> Iterator[tuple[int, Group]]:
    """Yields each group with its number when it must be submitted, and calls ``stages`` between them. If a plan has as
    many bulks as there are stages, these are its stages. Otherwise the whole plan runs after ``before`` of all stages,
    and ``after`` of all stages follows it."""
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
