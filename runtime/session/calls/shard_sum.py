"""Adds what the shards of a step give: gradients of parameters and new values of buffers.

The sum over S shards, a power of two, is a binary tree: shards 2i and 2i + 1 are added first, then these sums in the
same way, in f32 (f64 for a model in f64), always left + right. A process that owns 2^k neighbouring shards computes one
subtree, whatever the number of processes. So the bits of the sum depend on S alone. If a step has micro-batches, what
those of a shard give is added one after the other, before the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Outputs
    from dslc.runtime.session.calls.terms import Terms

_BLOCK: Final = 1 << 18  # elements that are widened from 16 bits at a time


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
    """The sums of what shards give, in one vector of ``dtype``, f32 or f64, as ``terms`` places them."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.dtype = numpy_dtype(terms.dtype)
        self.count = terms.bytes // terms.item
        self._spans = {t.name: slice(t.at // terms.item, t.at // terms.item + t.elements) for t in terms.rows}
        self._halves = {t.name: t.dtype for t in terms.rows if t.dtype != terms.dtype}

    def arrays(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Views of a vector, as the update reads it."""
        first = {name: at // self.terms.item for name, at, _ in self.terms.reads}
        return {n: vector[first[n] : first[n] + prod(shape)].reshape(shape) for n, _, shape in self.terms.reads}

    def given(self, vector: NDArray[Any]) -> Outputs:
        """A vector as outputs of a shard."""
        return [(name, "shard", vector[span]) for name, span in self._spans.items()]

    def take(self, vector: NDArray[Any], outputs: Outputs, *, add: bool) -> None:
        """Write what a shard gives into a vector, or add it: the vector is the left term."""
        with _quiet():
            for name, kind, view in outputs:
                if kind == "shard":
                    target, given = vector[self._spans[name]], view.reshape(-1)
                    for start in range(0, target.size, _BLOCK):
                        here = target[start : start + _BLOCK]
                        there = self._widened(name, given[start : start + _BLOCK])
                        if add:
                            np.add(here, there, out=here)
                        else:
                            np.copyto(here, there, casting="no")

    def _widened(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype == self.dtype:
            return array
        if self._halves.get(name) == "bf16":
            array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32)
        return array.astype(self.dtype, copy=False)


class Running:
    """The sum of what the ``count`` micro-batches of a shard give, one after the other."""

    def __init__(self, parts: Parts, count: int) -> None:
        self._count = count
        self._sum = np.zeros(parts.count, parts.dtype)
        self._parts, self._added = parts, 0

    @property
    def bytes(self) -> int:
        return self._sum.nbytes

    def begin(self) -> None:
        """Forget a sum that an error left incomplete."""
        self._added = 0

    def add(self, outputs: Outputs) -> Outputs | None:
        """Add the next micro-batch's outputs of kind shard; the shard's outputs after its last one."""
        self._parts.take(self._sum, outputs, add=self._added > 0)
        self._added = (self._added + 1) % self._count
        return None if self._added else self._parts.given(self._sum)


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

    def add(self, outputs: Outputs) -> None:
        """Add the next shard's outputs of kind shard."""
        before = self.added
        assert before < self.count, "the tree is complete"
        self.parts.take(self._levels[0], outputs, add=before % 2 == 1)
        with _quiet():
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


def sum_bytes(vector: int, shards: int, processes: int, each: int = 1, own: bool = False) -> int:
    """The host's bytes that a process takes at most to add what its shards give, and to exchange it with the others.
    ``vector``: the bytes of all sums; ``each``: the micro-batches of a shard; ``own``: an update reads the sums of its
    own slices alone, so that no others are written."""
    levels = ((shards // processes).bit_length() + (each > 1)) * vector
    if processes == 1:
        return levels
    piece = -(-vector // processes)
    # what the other processes send of this one's part, the first level of their sums, and the total
    return levels + (processes - 1) * piece + processes // 2 * piece + (piece if own else vector)


def _quiet() -> AbstractContextManager[Any]:
    """Inside, numpy does not warn of non-finite values, which the update reports."""
    return np.errstate(all="ignore")
