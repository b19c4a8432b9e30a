"""Compares buffers on the GPU. All comparisons of a check are enqueued together, and their numbers are read at once:
the host waits for the GPU once, however many results and operands there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.graph import Launch
from dslc.runtime.cuda.owned import Owned
from dslc.tune.checking import Difference, combined, damage
from dslc.tune.operands import PATTERN, ZONE, Guarded, read

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device

#: By dtype the function of the comparing kernel, its blocks and threads: ``dslc.compiler.codegen.cuda.compare``.
Comparer = Callable[[str], tuple[Any, int, int]]
_RESULTS: Final = 4  # of a block of the kernel, in f64
#: Elements of more than so many times the usual size do not say what is usual. Of normal values, one in 370 is, so the
#: usual size comes out 0.3 % less; of a square matrix of ten rows or more, the diagonal may be.
_UNUSUAL: Final = 3.0
_SAME: Final = 0.9  # of the size before, at which it is found
_PASSES: Final = 16
#: Below each element that is not zero, and above each element; their squares and quotients are still f64.
_LEAST, _MOST = 1e-150, 1e60


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor and its reference. ``usual``: see ``Difference``. ``first``: enqueues what must be done before."""

    dtype: str
    result: Guarded
    reference: Guarded
    usual: float = 0.0
    first: Callable[[], None] | None = None


def same_bits(result: Guarded, reference: Guarded, first: Callable[[], None] | None = None) -> Pair:
    """A pair whose difference is 0 if both hold the same bits. Compared as integers, so that each nan is itself."""
    return Pair("i32" if result.size % 4 == 0 else "u8", result, reference, 0.0, first)


class Comparison:
    """``owned`` gives its memory back."""

    def __init__(self, device: Device, owned: Owned, stream: Any, comparer: Comparer) -> None:
        self._device, self._owned, self._stream, self._comparer = device, owned, stream, comparer
        self._area, self._size = 0, 0

    def of(self, pairs: Sequence[Pair], blocks: Sequence[Guarded] = ()) -> tuple[list[Difference], str | None]:
        """The difference of each pair, and where something was written outside of the blocks, or None. Waits for all
        earlier work of the stream, once."""
        count = self._comparer("f32")[1]
        row = 8 * _RESULTS * count
        zones = len(pairs) * row
        self._reserve(zones + 2 * ZONE * len(blocks))
        for number, pair in enumerate(pairs):
            self._enqueue(pair, self._area + number * row)
        for number, block in enumerate(blocks):
            for side, at in enumerate((block.address - ZONE, block.address + block.size)):
                self._device.driver.copy(self._area + zones + (2 * number + side) * ZONE, at, ZONE, self._stream)
        raw = read(self._device, self._area, zones + 2 * ZONE * len(blocks), self._stream)
        parts = raw[:zones].view(np.float64).reshape(len(pairs), count, _RESULTS)
        sides = raw[zones:].reshape(len(blocks), 2, ZONE)
        held = [(b.name, before.tobytes(), after.tobytes()) for b, (before, after) in zip(blocks, sides, strict=True)]
        return [combined(each) for each in parts], damage(held, PATTERN)

    def usual(self, dtype: str, tensor: Guarded) -> float:
        """The usual size of a tensor's elements: the root mean square of those that are not zero, in which those that
        are much larger count as if they were ``_UNUSUAL`` times as large as usual: the diagonal of a product of a
        tensor with itself says nothing about its other elements. 0 for integers, which must be equal."""
        if dtype not in ("f64", "f32", "f16", "bf16"):
            return 0.0
        [present, squares], _ = self.of([Pair(dtype, tensor, tensor, limit) for limit in (_LEAST, _MOST)])
        if not present.whole:
            return 0.0
        size = _MOST * math.sqrt(squares.whole / present.whole)
        for _ in range(_PASSES):
            before, limit = size, _UNUSUAL * size
            [within], _ = self.of([Pair(dtype, tensor, tensor, limit)])
            size = limit * math.sqrt(within.whole / present.whole)
            if size > _SAME * before:
                break
        return size

    def _reserve(self, size: int) -> None:
        if size > self._size:
            self._area, self._size = self._device.pool.allocate(size, self._owned.noted).address, size

    def _enqueue(self, pair: Pair, parts: int) -> None:
        from dslc.runtime.artifact.dtypes import ITEMSIZE

        if pair.first is not None:
            pair.first()
        function, blocks, threads = self._comparer(pair.dtype)
        places = [("pointer", address) for address in (pair.result.address, pair.reference.address, parts)]
        count = pair.result.size // ITEMSIZE[pair.dtype]
        arguments = Arguments([*places, ("i64", count), ("f64", pair.usual)])
        Launch(function, (blocks, 1, 1), (threads, 1, 1), 0, arguments, "comparison").submit(self._device, self._stream)
