"""The sums over the shards of a step in host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.session.calls.shard_sum import Parts, Running, Tree, shard_bytes, sum_bytes
from dslc.runtime.session.host_memory import ensure_free

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.session.backend import Bound, Outputs
    from dslc.runtime.session.calls.shard_sum import Exchange


class HostSums:
    """Implements ``Sums``: outputs are added as soon as they are there. OutOfMemory R401, ArtifactError R301."""

    def __init__(self, shard: Plan, update: Plan, count: int, each: int) -> None:
        need = sum_bytes(shard_bytes(shard), count, 1, each)
        ensure_free(need, [("the sums over shards", need)])
        self._parts, self._count = Parts(shard, update), count
        self._tree = Tree(self._parts, count)
        self._micro = Running(self._parts, each) if each > 1 else None
        self._group: Exchange | None = None
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
            ports = [(name, kind) for name, kind, _ in self._numbers[0]]
            own = np.array([[view for _, _, view in row] for row in self._numbers], np.float64)
            total, rows = self._group.total(total, own)
            self._numbers = [[(name, kind, n) for (name, kind), n in zip(ports, row, strict=True)] for row in rows]
        return self._parts.arrays(total)

    def numbers(self) -> Sequence[Outputs]:
        return self._numbers
