"""Adds what the shards of a step give: gradients of parameters and new values of buffers.

The sum over S shards, a power of two, is a binary tree: shards 2i and 2i + 1 are added first, then these sums in the
same way, in f32 (f64 for a model in f64), always left + right. A process that owns 2^k neighbouring shards computes one
subtree, whatever the number of processes. So the bits of the sum depend on S alone. If a step has micro-batches, what
those of a shard give is added one after the other, before the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.slices import aligned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Plan


class Exchange(Protocol):
    """The processes that train together; each owns as many neighbouring shards. ``rank`` counts from 0."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def summed(self, vector: NDArray[Any], spans: Sequence[slice]) -> NDArray[Any]:
        """This process's part of the sum of all processes' vectors, as ``added`` computes it. ``spans``: the part of
        each process."""
        ...

    def spread(self, vector: NDArray[Any], spans: Sequence[Sequence[slice]]) -> None:
        """Write into each process's vector the elements that another one has: ``spans`` are those of each."""
        ...

    def gathered(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """All processes' rows, in the order of their ranks; u8[bytes] -> u8[size, bytes]."""
        ...


class Parts:
    """The tensors that shards add, in one vector: side by side as in the plan's io, each aligned.

    ``dtype``: f32 or f64. ArtifactError R301 if the two plans do not fit each other."""

    def __init__(self, shard: Plan, update: Plan) -> None:
        given = {p.name: shard.buffers[p.buffer] for p in shard.outputs if p.kind == "shard"}
        wanted = {p.name: update.buffers[p.buffer] for p in update.inputs}
        facts = [{n: (b.dtype, b.shape) for n, b in each.items()} for each in (given, wanted)]
        dtypes = {b.dtype for b in given.values()}
        if facts[0] != facts[1] or len(dtypes) != 1:
            raise ArtifactError("R301", "`update_step` does not read what `train_step` gives, or it has several dtypes",
                                place="programs", help="build the artifact again")  # fmt: skip
        self.dtype = numpy_dtype(dtypes.pop())
        self.spans: dict[str, tuple[slice, tuple[int, ...]]] = {}
        first = min(buffer.offset for buffer in given.values())
        for name, buffer in sorted(given.items(), key=lambda each: each[1].offset):
            at = (buffer.offset - first) // self.dtype.itemsize
            self.spans[name] = (slice(at, at + prod(buffer.shape)), tuple(buffer.shape))
        self.count = shard_bytes(shard) // self.dtype.itemsize

    def arrays(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Views of a vector, by name and in their shapes."""
        return {name: vector[span].reshape(shape) for name, (span, shape) in self.spans.items()}


class Running:
    """The sum of what the ``count`` micro-batches of a shard give, one after the other."""

    def __init__(self, parts: Parts, count: int) -> None:
        self._count = count
        self._sum = np.zeros(parts.count, parts.dtype)
        self._views = parts.arrays(self._sum)
        self._added = 0

    @property
    def bytes(self) -> int:
        return self._sum.nbytes

    def begin(self) -> None:
        """Forget a sum that an error left incomplete."""
        self._added = 0

    def add(self, outputs: Iterable[tuple[str, str, NDArray[Any]]]) -> list[tuple[str, str, NDArray[Any]]] | None:
        """Add the next micro-batch's outputs of kind shard; the shard's outputs after its last one."""
        with _quiet():
            for name, kind, view in outputs:
                if kind == "shard" and self._added:
                    np.add(self._views[name], view, out=self._views[name])
                elif kind == "shard":
                    np.copyto(self._views[name], view, casting="no")
        self._added = (self._added + 1) % self._count
        return None if self._added else [(name, "shard", view) for name, view in self._views.items()]


class Tree:
    """The sum of ``count`` neighbouring shards, a power of two, which are added one after the other."""

    def __init__(self, parts: Parts, count: int) -> None:
        self.parts, self.count = parts, count
        self._levels = [np.zeros(parts.count, parts.dtype) for _ in range(count.bit_length())]
        self.added = 0

    @property
    def bytes(self) -> int:
        return sum(level.nbytes for level in self._levels)

    def begin(self) -> None:
        """Forget a sum that an error left incomplete."""
        self.added = 0

    def add(self, outputs: Iterable[tuple[str, str, NDArray[Any]]]) -> None:
        """Add the next shard's outputs of kind shard."""
        before = self.added
        assert before < self.count, "the tree is complete"
        views = self.parts.arrays(self._levels[0])
        with _quiet():
            for name, kind, view in outputs:
                if kind == "shard" and before % 2:
                    np.add(views[name], view, out=views[name])
                elif kind == "shard":
                    np.copyto(views[name], view, casting="no")
            level, rest = 0, before
            while rest % 2:  # a subtree is complete: it moves up, to the right of the one that waits there, or alone
                rest //= 2
                below, above = self._levels[level], self._levels[level + 1]
                if rest % 2:
                    np.add(above, below, out=above)
                else:
                    self._levels[level], self._levels[level + 1] = above, below
                level += 1
        self.added += 1

    @property
    def total(self) -> NDArray[Any]:
        """The sum of ``count`` shards; valid until the next ``add``."""
        assert self.added == self.count, "the tree is not complete"
        return self._levels[-1]


def added(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The upper part of the tree: the sum of the subtrees of a power of two of processes, in their order. It takes new
    memory for the first level alone; the others are added into it."""
    if len(vectors) == 1:
        return vectors[0]
    with _quiet():
        level: list[NDArray[Any]] = [left + right for left, right in zip(vectors[::2], vectors[1::2], strict=True)]
        while len(level) > 1:
            level = [np.add(left, right, out=left) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def sum_bytes(vector: int, shards: int, processes: int, each: int = 1) -> int:
    """The host's bytes that a process takes at most to add what its shards give, and to exchange it with the others.
    ``vector``: the bytes of all that one shard gives; ``each``: the micro-batches of a shard."""
    levels = ((shards // processes).bit_length() + (each > 1)) * vector
    if processes == 1:
        return levels
    piece = -(-vector // processes)
    # what the other processes send of this one's part, the first level of their sums, and the total
    return levels + (processes - 1) * piece + processes // 2 * piece + vector


def shard_bytes(plan: Plan) -> int:
    """The bytes of all that a shard gives, each tensor aligned; 0 for the plan of a whole batch."""
    given = [plan.buffers[port.buffer] for port in plan.outputs if port.kind == "shard"]
    return aligned(max(b.end for b in given)) - min(b.offset for b in given) if given else 0


def _quiet() -> AbstractContextManager[Any]:
    """Inside, numpy does not warn of non-finite values, which the update reports."""
    return np.errstate(all="ignore")
