"""The sums over the shards of a step in host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.session.calls.shard_sum import Parts, Running, Tree, sum_bytes
from dslc.runtime.session.calls.terms import Terms
from dslc.runtime.session.host_memory import ensure_free

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.artifact.share import Share
    from dslc.runtime.cpu.backend import HostState
    from dslc.runtime.session.backend import Bound, Change, Feed, Outputs
    from dslc.runtime.session.calls.shard_sum import Exchange


class HostSums:
    """Implements ``Sums``: outputs are added as soon as they are there. OutOfMemory R401, ArtifactError R301."""

    def __init__(self, shard: Plan, update: Plan, count: int, each: int, share: Share | None, state: HostState) -> None:
        """``share``: of updates, that of this process; ``state``: where it updates."""
        terms = Terms.of(shard, update)
        need = sum_bytes(terms.bytes, count, 1, each)
        ensure_free(need, [("the sums over shards", need)])
        self._parts, self._count = Parts(terms), count
        self._tree = Tree(self._parts, count)
        self._micro = Running(self._parts, each) if each > 1 else None
        self._group: Exchange | None = None
        self._share, self._state = share, state
        self._numbers: list[Outputs] = []

    def join(self, group: Exchange) -> None:
        self._group = group
        self._tree = Tree(self._parts, self._count // group.size)

    def begin(self) -> None:
        self._tree.begin()
        if self._micro is not None:
            self._micro.begin()
        self._numbers = []

    def run(self, shard: Bound) -> None:
        outputs = list(shard.run())
        if self._micro is None:
            self._tree.add(outputs)
        elif (whole := self._micro.add(outputs)) is not None:
            self._tree.add(whole)
        numbers = [(n, kind, np.asarray(view, np.float64).copy()) for n, kind, view in outputs if kind != "shard"]
        self._numbers.append(numbers)

    def total(self) -> Mapping[str, NDArray[Any]]:
        total = self._tree.total
        if self._group is not None:
            total = self._exchanged(self._group, total)
            ports = [(name, kind) for name, kind, _ in self._numbers[0]]
            own = np.array([[view for _, _, view in row] for row in self._numbers], np.float64)
            rows = self._group.gathered(own.reshape(-1).view(np.uint8)).view(np.float64).reshape(-1, own.shape[1])
            self._numbers = [[(name, kind, n) for (name, kind), n in zip(ports, row, strict=True)] for row in rows]
        return self._parts.arrays(total)

    def _exchanged(self, group: Exchange, vector: NDArray[Any]) -> NDArray[Any]:
        """The sums that this process's update reads; other elements are undefined."""
        total = np.empty_like(vector)
        item, end = vector.itemsize, 0
        if self._share is not None:  # gradients of a slice go to the one that updates it
            for stage in range(self._share.stages):
                parts = [self._share.part(rank, stage) for rank in range(group.size)]
                spans = [slice(start // item, (start + size) // item) for start, size in parts]
                total[spans[group.rank]] = group.summed(vector, spans)
                if self._share.reads_all:
                    group.spread(total, [[span] for span in spans])
            end = self._share.total // item
        rest = len(vector) - end
        bounds = [end + rest * rank // group.size for rank in range(group.size + 1)]
        spans = [slice(start, stop) for start, stop in pairwise(bounds)]
        if rest:
            total[spans[group.rank]] = group.summed(vector, spans)
            group.spread(total, [[span] for span in spans])
        return total

    def updated(self, feed: Feed, change: Change) -> Outputs:
        outputs = feed(self.total()).run(change)
        share, group = self._share, self._group
        if share is None or group is None:
            return outputs
        every = [[each for stage in range(share.stages) for each in share.updated(r, stage)] for r in range(share.size)]
        group.spread(self._state.block, [[slice(at, at + size) for at, size in each] for each in every])
        found = list(outputs)
        flags = next(view for _, kind, view in found if kind == "flags")
        either: NDArray[Any] = np.logical_or.reduce(group.gathered(flags.view(np.uint8)))
        return [(name, kind, either if kind == "flags" else view) for name, kind, view in found]

    def numbers(self) -> Sequence[Outputs]:
        return self._numbers
