"""Products of few rows with rows: both sides are contiguous along the sum, so vectors run along it.

For one row times a weight ``[out, in]``, packing would cost more than the product. Each element keeps a vector of
partial sums. Finally the vectors are transposed in registers and their lanes added, first to last. The order depends
only on the depth, so bits depend neither on tiles and tasks nor on the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, spans
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code, lanes_of
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_BLOCK_COLUMNS: Final = 64  # columns per unit: a multiple of every tile
_MIN_TASK_PRODUCTS: Final = 8192  # fewest vector products per task, if there are as many
#: By registers the accumulators of a tile: a power of two that leaves registers for operands.
_TILE: Final = {32: 16, 8: 4}


@described("Dot", "dtype batch rows columns depth starts")
@dataclass(frozen=True)
class Dot(KernelSpec):
    """``k(a, b, c)``: ``c[batch, row, column] = sum over k < depth of a[batch, row, k] * b[batch, column, k]``.

    k has stride 1 in both; the axes' strides are as in a Contraction; ``starts`` are the operands' first elements.
    """

    dtype: DType
    batch: tuple[Axis, ...]
    rows: Axis
    columns: Axis
    depth: int
    starts: tuple[int, int, int] = (0, 0, 0)

    @property
    def vector(self) -> int:
        return lanes_of(self.dtype)

    @property
    def grid(self) -> tuple[int, ...]:
        """Units along the batch axes and the columns."""
        return (*(x.size for x in self.batch), -(-self.columns.size // _BLOCK_COLUMNS))

    @property
    def group(self) -> int:
        """Units per task."""
        unit = self.rows.size * min(_BLOCK_COLUMNS, self.columns.size) * -(-self.depth // self.vector)
        return max(1, _MIN_TASK_PRODUCTS // unit)

    @property
    def tasks(self) -> int:
        return -(-math.prod(self.grid) // self.group)

    def emit(self, code: Code) -> None:
        """Emits tiles of rows and columns."""
        v = Vectors(code, self.dtype)
        pointers = [code.argument(i) for i in range(3)]
        size = self.columns.size
        stop = code.least(code.mul(code.last, self.group), math.prod(self.grid))
        with code.loop(stop, code.mul(code.first, self.group)) as unit:
            *batch, block = code.unravel(unit, self.grid)
            base: list[Any] = list(self.starts)
            for axis, index in zip(self.batch, batch):
                base = _advanced(code, base, axis, index)
            first = code.mul(block, _BLOCK_COLUMNS)
            last = size if size <= _BLOCK_COLUMNS else code.least(code.add(first, _BLOCK_COLUMNS), size)
            tile = _TILE[code.registers]
            high = 1 << (min(self.rows.size, math.isqrt(tile)).bit_length() - 1)
            for column, wide in spans(code, first, last, size, tile // high):
                for row, tall in spans(code, 0, self.rows.size, self.rows.size, high):
                    here = _advanced(code, _advanced(code, base, self.columns, column), self.rows, row)
                    self._tile(v, pointers, here, tall, wide)

    def _tile(self, v: Vectors, pointers: list[Any], base: list[Any], tall: int, wide: int) -> None:
        code = v.code
        sums = [v.zero] * (tall * wide)

        def step(k: Any, count: int) -> None:
            a, b = code.add(base[0], k), code.add(base[1], k)
            right = [v.load(pointers[1], code.add(b, j * self.columns.b), count) for j in range(wide)]
            for i in range(tall):
                left = v.load(pointers[0], code.add(a, i * self.rows.a), count)
                for number, other in enumerate(right, i * wide):
                    sums[number] = v.fma(left, other, sums[number])

        whole = self.depth - self.depth % v.lanes
        if whole:
            with code.loop(whole, 0, v.lanes, sums) as k:
                step(k, v.lanes)
        if self.depth % v.lanes:
            step(whole, self.depth % v.lanes)
        for start in range(0, len(sums), v.lanes):
            part = sums[start : start + v.lanes]
            turned = v.transpose(part + [v.zero] * (v.lanes - len(part)))
            total = turned[0]
            for other in turned[1:]:
                total = v.b.fadd(total, other)
            for lane in range(len(part)):
                i, j = divmod(start + lane, wide)
                place = code.add(base[2], i * self.rows.c + j * self.columns.c)
                one = v.b.extract_element(total, I64(lane))
                v.b.store(one, code.at(pointers[2], place, v.lane), align=self.dtype.itemsize)


def _advanced(code: Code, base: list[Any], axis: Axis, index: Any) -> list[Any]:
    return [code.add(x, code.mul(index, stride)) for x, stride in zip(base, (axis.a, axis.b, axis.c))]
