"""Compares buffers on the GPU. All comparisons of a check are enqueued together, and their numbers are read at once:
the host waits for the GPU once, however many results and operands there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.graphs.graph import Launch
from dslc.runtime.cuda.owned import Owned
from dslc.tune.checking import EQUAL, Difference, Limits, combined, damage
from dslc.tune.operands import PATTERN, ZONE, Guarded, read

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device

#: By dtype the function of the comparing kernel, its blocks and threads: ``dslc.compiler.codegen.cuda.compare``.
Comparer = Callable[[str], tuple[Any, int, int]]
_RESULTS: Final = 6  # of a block of the kernel, in f64


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor and its reference. ``limits``: for the result. ``first``: enqueues what must be done before."""

    dtype: str
    result: Guarded
    reference: Guarded
    limits: Limits = EQUAL
    first: Callable[[], None] | None = None

    @property
    def count(self) -> int:
        """The number of elements."""
        from dslc.runtime.artifact.dtypes import ITEMSIZE

        return self.result.size // ITEMSIZE[self.dtype]


def same_bits(result: Guarded, reference: Guarded, first: Callable[[], None] | None = None) -> Pair:
    """A pair whose difference is 0 if both hold the same bits. Compared as integers, so that each nan is itself."""
    return Pair("i32" if result.size % 4 == 0 else "u8", result, reference, first=first)


class Comparison:
    """``owned`` gives its memory back."""

    def __init__(self, device: Device, owned: Owned, stream: Any, comparer: Comparer) -> None:
        self._device, self._owned, self._stream, self._comparer = device, owned, stream, comparer
        self._area, self._size = 0, 0

    def of(self, pairs: Sequence[Pair], blocks: Sequence[Guarded] = ()) -> tuple[list[Difference], str | None]:
        """The difference of each pair, and where something was written outside of the blocks, or None. Waits for all
        earlier work of the stream, once."""
        each = self._comparer("f32")[1]
        row = 8 * _RESULTS * each
        zones = len(pairs) * row
        self._reserve(zones + 2 * ZONE * len(blocks))
        for number, pair in enumerate(pairs):
            self._enqueue(pair, self._area + number * row)
        for number, block in enumerate(blocks):
            for side, at in enumerate((block.address - ZONE, block.address + block.size)):
                self._device.driver.copy(self._area + zones + (2 * number + side) * ZONE, at, ZONE, self._stream)
        raw = read(self._device, self._area, zones + 2 * ZONE * len(blocks), self._stream)
        parts = raw[:zones].view(np.float64).reshape(len(pairs), each, _RESULTS)
        sides = raw[zones:].reshape(len(blocks), 2, ZONE)
        held = [(b.name, before.tobytes(), after.tobytes()) for b, (before, after) in zip(blocks, sides, strict=True)]
        found = [combined(part, pair.count) for part, pair in zip(parts, pairs, strict=True)]
        return found, damage(held, PATTERN)

    def _reserve(self, size: int) -> None:
        if size > self._size:
            self._area, self._size = self._device.pool.allocate(size, self._owned.noted).address, size

    def _enqueue(self, pair: Pair, parts: int) -> None:
        if pair.first is not None:
            pair.first()
        function, blocks, threads = self._comparer(pair.dtype)
        places = [("pointer", address) for address in (pair.result.address, pair.reference.address, parts)]
        arguments = Arguments([*places, ("i64", pair.count), ("f64", pair.limits.unit), ("f64", pair.limits.far)])
        Launch(function, (blocks, 1, 1), (threads, 1, 1), 0, arguments, "comparison").submit(self._device, self._stream)
