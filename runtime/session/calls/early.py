"""When the gradients of each stage of an exchange are there, so that they leave while the backward pass goes on.

A stage moves a part of each process's slices, and then the processes update these. So it may begin when the shard has
written the gradients of these parts, and reads the parameters of these parts no more. Each process takes its parts in
the order in which they are ready. This follows from plans alone: all processes find the same order.
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
    from dslc.runtime.artifact.interface import Interface


@dataclass(frozen=True, slots=True)
class Early:
    """``share``: with the order of the stages; ``after``: for each stage but the last, the number of the shard's
    instructions after which it may begin. The last one begins when the shard has ended."""

    share: Share
    after: tuple[int, ...]


def early_by_sizes(
    programs: Iterable[tuple[Program, Plan]], share: Share | None, interface: Interface
) -> dict[tuple[tuple[str, int], ...], Early]:
    """What leaves while a shard runs, by the sizes of its program. Nothing unless each process has one run a step:
    others give sums, which are there later."""
    train = interface.train
    if share is None or train is None or train.shards > share.size or train.accumulate > 1:
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
    """The stages of one shard for each process. None if there is one stage. ``shard``: with the state of this process;
    ArtifactError R301 if the plans do not fit each other."""
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
    # what all processes update belongs to the first stage
    first = ready(share.total, terms.bytes - share.total, _others(share))
    after = [max(found[rank][order[rank][stage]] for rank in ranks) for stage in stages[:-1]]
    return Early(replace(share, order=order), tuple(accumulate([max(first, after[0]), *after[1:]], max)))


def _others(share: Share) -> Iterator[Range]:
    """The bytes of this process's state that are in no slices."""
    for tensor in share.tensors:
        if tensor.slot is None and not tensor.pieces:
            yield share.offsets[tensor.name], tensor.bytes


class _Ends:
    """After how many instructions of a plan nothing accesses some bytes any more."""

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
