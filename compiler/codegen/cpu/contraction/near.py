"""Copies the rows of a unit to the stack, tile by tile, if their elements are far apart along the sum.

A transposed operand has one cache line, and mostly one page, for each inner index: tiles that read it in place would
load each of them again for all lanes, and more pages than the processor knows addresses of. The copy is
``[tiles, inner, rows of a tile]``, as in Goto and van de Geijn (2008), so that a tile reads it in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import spans
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors, power_of_two
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.contraction.shared import Tile

ROWS: Final = 48  # most rows of a unit: with 768 inner indices of f32 they take 147 KiB of a near cache and the stack
_SPARE: Final = 16  # indices between tiles: whole vectors are stored, beyond the rows of a tile


class Near:
    """The copy of at most ``ROWS`` rows with stride 1 and ``most`` inner indices. ``memory``: where it is."""

    def __init__(self, v: Vectors, source: Any, most: int, tile: Tile) -> None:
        self.v, self.source, self.tile = v, source, tile
        self.step = most + _SPARE
        self.memory = v.code.local(v.lane, ROWS * self.step, VECTOR_BYTES)

    def place(self, start: Any, at: Any) -> Any:
        """The first element of the tile at row ``at`` of a unit that begins with row ``start``."""
        code = self.v.code
        return code.mul(at if isinstance(start, int) and not start else code.b.sub(code.int(at), start), self.step)

    def copy(self, base: Any, start: Any, stop: Any, size: Any, inner: tuple[Any, Any]) -> None:
        """Copies rows ``start`` to ``stop`` of ``size`` from element ``base`` on; ``inner``: how many indices, and
        their stride. A store beyond a tile's rows is overwritten by that of the next index."""
        v, code, high = self.v, self.v.code, self.tile.row_tile
        count, stride = inner
        with code.loop(count) as k:
            line = code.add(base, code.mul(k, stride))
            for at, rows in spans(code, start, stop, size, high, self.tile.row_rest):
                place = code.add(self.place(start, at), code.mul(k, high))
                for x in range(0, rows, v.lanes):
                    value = v.load(self.source, code.add(code.add(line, at), x), min(v.lanes, rows - x))
                    lanes = power_of_two(min(v.lanes, high - x))
                    short = value if lanes == v.lanes else v.pick(value, value, range(lanes))
                    v.store(short, self.memory, code.add(place, x))
