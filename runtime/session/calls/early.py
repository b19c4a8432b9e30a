"""After which instruction of a shard each stage of an exchange may begin, while the backward pass goes on.

A stage moves the gradients of a part of each process's slices; then the processes update these parts. So a stage may
begin when the shard has written these gradients and no later instruction reads the parameters of these parts. Each
process takes its parts in the order in which they become ready. This order follows from the plans, so all processes
find the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import accesses
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.share import Range, Share, shared_plan
from dslc.runtime.session.calls.terms import Terms

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Program


@dataclass(frozen=True, slots=True)
class Early:
    """``share``: with the order of the stages. ``after``: for each stage but the last, it may begin when so many of the
    shard's first instructions have ended. The last stage begins when the shard has ended."""

    share: Share
    after: tuple[int, ...]


def early_by_sizes(
    programs: Iterable[tuple[Program, Plan]], share: Share | None
) -> dict[tuple[tuple[str, int], ...], Early]:
    """The stages that may begin while a shard runs, by the sizes of its program. Empty unless each process has one run
    per step: sums over several runs are complete only after the last one."""
    if share is None or not share.early:
        return {}
    plans = {
        (program.entry, tuple(program.sizes.items())): shared_plan(plan, program.entry, share)
        for program, plan in programs
        if program.entry in ("train_step", "update_step")
    }
    steps = [(sizes, plan) for (entry, sizes), plan in plans.items() if entry == "train_step"]
    found = {sizes: early_of(plan, plans["update_step", sizes], share) for sizes, plan in steps}
    return {sizes: early for sizes, early in found.items() if early is not None}


def early_of(shard: Plan, update: Plan, share: Share) -> Early | None:
    """The stages of an exchange between processes with one shard each; None if there is only one stage. ``shard``: its
    plan with the state of this process. ArtifactError R301 if the plans do not fit each other."""
    if share.stages == 1:
        return None
    terms, ends = Terms.of(shard, update), _Ends(shard)
    stages, ranks = range(share.stages), range(share.size)

    def ready(start: int, size: int, changed: Iterable[Range]) -> int:
        rows = [t for t in terms.rows if t.at < start + size and start < t.at + t.elements * terms.item]
        given = [ends.of("io", terms.first + t.given, t.elements * ITEMSIZE[t.dtype]) for t in rows]
        return max([*given, *(ends.of("state", at, count) for at, count in changed)], default=0)

    found = [[ready(*share.span(rank, stage), share.updated(rank, stage)) for stage in stages] for rank in ranks]
    order = [sorted(stages, key=lambda stage: (of_rank[stage], stage)) for of_rank in found]
    # tensors that all processes update belong to the first stage
    first = ready(share.total, terms.bytes - share.total, _others(share))
    after = [max(found[rank][order[rank][stage]] for rank in ranks) for stage in stages[:-1]]
    return Early(replace(share, order=order), tuple(accumulate([max(first, after[0]), *after[1:]], max)))


def _others(share: Share) -> Iterator[Range]:
    """The bytes of this process's state that belong to no slice."""
    for tensor in share.tensors:
        if tensor.slot is None and not tensor.pieces:
            yield share.offsets[tensor.name], tensor.bytes


class _Ends:
    """The last accesses of bytes in a plan: the number of instructions after which none accesses them."""

    def __init__(self, plan: Plan) -> None:
        self._last: dict[tuple[str, int, int], int] = {}
        for number, instruction in enumerate(plan.instructions):
            for side in accesses(instruction):
                for buffer in (plan.buffers[b] for b in side):
                    if buffer.bytes:
                        self._last[buffer.region, buffer.offset, buffer.end] = number + 1

    def of(self, region: str, start: int, size: int) -> int:
        every = self._last.items()
        return max((n for (r, low, high), n in every if r == region and low < start + size and start < high), default=0)
