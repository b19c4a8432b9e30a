"""The nodes of a transform: of one product with a matrix, or of several stages.

For the stage of order n1 of a transform of order n = n1 * n2, element n2 * a + b of the input is at [a, b] of a matrix
[n1, n2], and result c + n1 * d at [d, c] of a matrix [n2, n1]::

    result[d, c] = sum over b of root(n2)^(b * d) * (root(n)^(b * c) * sum over a of root(n1)^(a * c) * x[a, b])

So no stage moves elements: each sum is a product of matrices with the axes in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslc.compiler.ir.graph import Phase, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import add, mul, neg, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.division import mod
from dslc.compiler.ops.index.embedding import gather_rows
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.shape.slicing import concat, pad, slice_
from dslc.compiler.ops.shape.views import reshape, transpose
from dslc.compiler.passes.lower.fourier.matrices import Roots, Store
from dslc.compiler.passes.lower.fourier.ways import MOST_STORED, Shape

if TYPE_CHECKING:
    from dslc.compiler.passes.lower.fourier.matrices import Array


@dataclass(frozen=True)
class Stages:
    """Makes the nodes; ``store`` makes their constants."""

    b: Builder
    store: Store
    roots: Roots

    def whole(self, x: Sequence[Value], outputs: int, parts: Sequence[int]) -> list[Value]:
        """The results [*L, outputs] of one matrix, from re, or from re and im: [*L, given]. A gradient is multiplied by
        the transposed matrices of its transform, which has the other sign."""
        given, is_back = x[0].type.ints[-1], self.b.phase is Phase.BACKWARD
        roots = replace(self.roots, sign=-self.roots.sign) if is_back else self.roots
        matrices = self._matrices(roots, *((outputs, given) if is_back else (given, outputs)), x[0].type.dtype)
        return [self._imaginary(x, *matrices) if part else self._real(x, *matrices) for part in parts]

    def _real(self, x: Sequence[Value], cosines: Value, sines: Value) -> Value:
        y = self._rows(x[0], cosines)
        if len(x) == 1:
            return y
        return self.b(add if self.b.phase is Phase.BACKWARD else sub, y, self._rows(x[1], sines))

    def _imaginary(self, x: Sequence[Value], cosines: Value, sines: Value) -> Value:
        y, is_back = self._rows(x[0], sines), self.b.phase is Phase.BACKWARD
        if len(x) == 1:
            return self.b(neg, y) if is_back else y
        other = self._rows(x[1], cosines)
        return self.b(sub, other, y) if is_back else self.b(add, y, other)

    def of_orders(self, x: Sequence[Value], shape: Shape, orders: Sequence[int]) -> list[Value]:
        """The same in stages; L is one axis, that of the batch."""
        b = self.b
        joined = x[0] if len(x) == 1 else b(concat, *x, axis=1)
        y = self._stage(b(reshape, joined, shape=(*joined.type.ints, 1)), shape, orders, self.roots)
        return [self._first_of(b(reshape, each, shape=(shape.batch, each.type.ints[1])), shape.outputs) for each in y]

    def _rows(self, x: Value, matrix: Value) -> Value:
        """Rows times a matrix, which is transposed for a gradient; a vector is one row."""
        b, is_back = self.b, self.b.phase is Phase.BACKWARD
        shape = (*x.type.ints[:-1], matrix.type.ints[not is_back])
        rows = x if x.type.rank > 1 else b(reshape, x, shape=(1, *x.type.ints))
        y = b(matmul, rows, matrix, transpose_a=False, transpose_b=is_back)
        return y if y.type.ints == shape else b(reshape, y, shape=shape)

    def _matrices(self, roots: Roots, down: int, across: int, dtype: DType) -> list[Value]:
        """The matrices [down, across] of the real and the imaginary parts of the roots. A gradient's are those of its
        transform."""
        if roots.count <= MOST_STORED:
            return [self.stored(part, dtype) for part in roots.powers(down, across)]
        place = self._places(0, down, across)
        return [self._gathered(part, place, dtype) for part in roots.table()]

    def rows_times(self, x: Value, first: int, length: int, outputs: int, *, sine: bool) -> Value:
        """Rows of elements from number ``first`` on times the real or the imaginary parts of the roots."""
        matrix = self._gathered(self.roots.table()[sine], self._places(first, length, outputs), x.type.dtype)
        return self.b(matmul, x, matrix, transpose_a=False, transpose_b=False)

    def _places(self, first: int, down: int, across: int) -> Value:
        """The numbers of the roots in a matrix, whose first row is that of element ``first``."""
        b = Builder(name=self.b.name, span=self.b.span)
        rows = b(reshape, b(arange, shape=(down,), start=first, step=1), shape=(down, 1))
        columns = b(arange, shape=(across,), start=0, step=1)
        return b(mod, b(mul, rows, columns), b(full, value=self.roots.count, dtype=DType.I32, shape=()))

    def _gathered(self, table: Array, place: Value, dtype: DType) -> Value:
        return Builder(name=self.b.name, span=self.b.span)(gather_rows, self.stored(table, dtype), place)

    def stored(self, numbers: Array, dtype: DType) -> Value:
        """A constant; 16-bit floats are rounded from the f32 that the artifact holds."""
        wide = self.store(numbers, DType.F32 if dtype.is_half else dtype)
        return self.b(cast, wide, dtype=dtype) if dtype.is_half else wide

    def _stage(self, x: Value, shape: Shape, orders: Sequence[int], roots: Roots) -> list[Value]:
        """The parts of the results [batch, outputs or more, inner] of x, [batch, inputs * given, inner]."""
        b, dtype = self.b, x.type.dtype
        if not orders:
            matrix = roots.blocks(shape.given, shape.outputs, shape.inputs, shape.parts).T.reshape(len(shape.parts), -1)
            rows = (shape.outputs, shape.inputs * shape.given)
            return [self._product(self.stored(part.reshape(rows), dtype), x) for part in matrix]
        order, *others = orders
        re, im = self._of_first(x, shape, order, Roots(order, roots.sign))
        rest, axes = shape.count // order, (shape.count // order, order)
        cosine, sine = (
            b(reshape, self.stored(each, dtype), shape=(*axes, 1))
            for each in Roots(shape.count, roots.sign).powers(*axes)
        )
        turned = (
            b(sub, b(mul, re, cosine), b(mul, im, sine)),
            b(add, b(mul, re, sine), b(mul, im, cosine)),
        )
        joined = b(reshape, b(concat, *turned, axis=1), shape=(shape.batch, 2 * rest, order * shape.inner))
        last = Roots(rest, roots.sign, roots.scale)
        y = self._stage(joined, shape.second(order), others, last)
        return [b(reshape, each, shape=(shape.batch, each.type.ints[1] * order, shape.inner)) for each in y]

    def _of_first(self, x: Value, shape: Shape, order: int, roots: Roots) -> list[Value]:
        """The real and the imaginary parts, [batch, n2, order, inner], of the transforms of the first stage."""
        b, batch, inner, dtype = self.b, shape.batch, shape.inner, x.type.dtype
        given, rest = shape.first(order)
        if given * rest > shape.given:
            x = b(reshape, x, shape=(batch, shape.inputs, shape.given, inner))
            high = (0, 0, given * rest - shape.given, 0)
            x = b(pad, x, low=(0,) * 4, high=high, interior=(0,) * 4, value=0.0)
        blocks, rows = roots.blocks(given, order, shape.inputs, (0, 1)), shape.inputs * given
        x = b(reshape, x, shape=(batch, rows, rest * inner))
        if inner == 1:
            y = b(matmul, x, self.stored(blocks, dtype), transpose_a=True, transpose_b=False)
            return [b(reshape, part, shape=(batch, rest, order, 1)) for part in self._halves(y, 2)]
        y = self._product(self.stored(blocks.T, dtype), x)
        parts = (b(reshape, part, shape=(batch, order, rest, inner)) for part in self._halves(y, 1))
        return [b(transpose, part, perm=(0, 2, 1, 3)) for part in parts]

    def _product(self, left: Value, right: Value) -> Value:
        return self.b(matmul, left, right, transpose_a=False, transpose_b=False)

    def _halves(self, x: Value, axis: int) -> list[Value]:
        half = x.type.ints[axis] // 2
        return [self._slice(x, axis, i * half, (i + 1) * half) for i in range(2)]

    def _first_of(self, x: Value, size: int) -> Value:
        """The first elements of the last axis."""
        return x if x.type.ints[-1] == size else self._slice(x, x.type.rank - 1, 0, size)

    def _slice(self, x: Value, axis: int, start: int, stop: int) -> Value:
        shape = x.type.ints
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        stops = tuple(stop if i == axis else n for i, n in enumerate(shape))
        return self.b(slice_, x, starts=starts, stops=stops, steps=(1,) * len(shape))
