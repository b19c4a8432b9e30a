"""solve, inverse, det, slogdet: by Gaussian elimination."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ops.algebra.lu import lu
from dslc.compiler.ops.algebra.matrices import as_given, computed, require_square
from dslc.compiler.ops.algebra.triangular import columns_of, of_one_batch, triangular_solve, without_column
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import abs_, mul, sign
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import logical_and, logical_not
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.elementwise.transcendental import log
from dslc.compiler.ops.index.indexing import gather
from dslc.compiler.ops.reduction.cumulative import prod
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape


def _solved(call: Call, a: Value, b: Value) -> Value:
    """``a^-1 @ b`` of matrices with the same leading axes."""
    factors, order, _ = call.emit_all(lu, a)
    index = call.emit(reshape, order, shape=(*order.type.shape, 1))
    index = call.emit(expand, index, shape=b.type.shape)
    half = call.emit(gather, b, index, axis=b.type.rank - 2)
    half = call.emit(triangular_solve, factors, half, upper=False, transposed=False, unit=True)
    return call.emit(triangular_solve, factors, half, upper=True, transposed=False, unit=False)


def _pivots(call: Call, x: Value) -> tuple[Value, Value]:
    """The pivots [..., n] of matrices, whose product is the determinant but for its sign, and that sign as floats."""
    factors, _, swaps = call.emit_all(lu, computed(call, x))
    last, shape = x.type.rank - 1, x.type.shape[-2:]
    before = call.emit(tri, shape=shape, diagonal=-1)
    on = call.emit(logical_and, call.emit(tri, shape=shape, diagonal=0), call.emit(logical_not, before))
    chosen = call.emit(where, on, factors, call.full(0.0, factors.type.dtype))
    return call.emit(sum_, chosen, over=(last,), keep=False), call.emit(cast, swaps, dtype=factors.type.dtype)


class Solve(Function):
    """solve(a, b): the ``x`` with ``a @ x = b``.

    ``a`` is [n, n] or a batch [..., n, n]; ``b`` is a vector [n] for each matrix, or [..., n, k] for k systems; axes
    before them broadcast. By Gaussian elimination with row pivots, as ``torch.linalg.solve``. A singular matrix gives
    infinities or nan. Of a symmetric positive definite matrix, ``cholesky`` needs half the work.

    given: x: [B, 4, 4], y: [B, 4]
    >>> solve(x, y)
    """

    name = "solve"

    def build(self, call: Call, a: Value, b: Value) -> Value:
        vectors = columns_of(self.name, a.type, b.type)
        return as_given(call, without_column(call, _solved(call, *of_one_batch(call, a, b, vectors)), vectors), b)


class Inverse(Function):
    """inverse(x): the matrix with ``x @ inverse(x) = eye(n)``, of [n, n] or a batch [..., n, n].

    ``solve(x, b)`` gives ``inverse(x) @ b`` with less work and smaller errors. A singular matrix gives infinities or
    nan.

    given: x: [B, 4, 4]
    >>> inverse(x)
    """

    name = "inverse"

    def build(self, call: Call, x: Value) -> Value:
        require_square(self.name, x.type)
        shape = x.type.shape[-2:]
        lower, below = (call.emit(tri, shape=shape, diagonal=i) for i in (0, -1))
        on = call.emit(logical_and, lower, call.emit(logical_not, below))
        one, zero = (call.full(number, x.type.dtype) for number in (1.0, 0.0))
        return as_given(call, _solved(call, *of_one_batch(call, x, call.emit(where, on, one, zero), False)), x)


class Det(Function):
    """det(x): the determinant of [n, n], or of each matrix of a batch [..., n, n].

    Of large matrices it overflows: ``slogdet`` gives its logarithm. The gradient at a singular matrix is nan.

    given: x: [B, 4, 4]
    >>> det(x)
    """

    name = "det"

    def build(self, call: Call, x: Value) -> Value:
        require_square(self.name, x.type)
        pivots, swaps = _pivots(call, x)
        product = call.emit(prod, pivots, over=(pivots.type.rank - 1,), keep=False)
        return as_given(call, call.emit(mul, swaps, product), x)


class SlogDet(Function):
    """slogdet(x): the sign of the determinant, and the logarithm of its magnitude.

    Of [n, n], or of each matrix of a batch [..., n, n], as ``torch.linalg.slogdet``. The sign has no gradient. Of a
    singular matrix they are 0 and -inf.

    given: x: [B, 4, 4]
    >>> _, y = slogdet(x)
    """

    name = "slogdet"

    def build(self, call: Call, x: Value) -> tuple[Value, Value]:
        require_square(self.name, x.type)
        pivots, swaps = _pivots(call, x)
        over = (pivots.type.rank - 1,)
        signs = call.emit(mul, swaps, call.emit(prod, call.emit(sign, pivots), over=over, keep=False))
        logs = call.emit(sum_, call.emit(log, call.emit(abs_, pivots)), over=over, keep=False)
        return as_given(call, signs, x), as_given(call, logs, x)


for _function in (Solve, Inverse, Det, SlogDet):
    function(_function())
