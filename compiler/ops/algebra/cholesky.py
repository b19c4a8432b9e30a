"""cholesky: the triangular root of a positive definite matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.algebra.matrices import (
    as_given,
    batched,
    computed,
    lower_part,
    product,
    require_square,
    triangle,
    turned,
)
from dslc.compiler.ops.algebra.triangular import triangular_solve
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, only, scaled
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Cholesky(Op):
    """cholesky(x): the lower triangle y with ``y @ y.T = (x + x.T) / 2``, of matrices [*L, n, n].

    Column by column; of each element the terms are subtracted in the order of the columns. What follows a pivot that is
    not above 0 is nan or infinite.
    """

    name = "cholesky"
    wide = "exponent"
    statistics = (0,)
    needs = (frozenset({"y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        require_square(self.name, types[0])
        assert not types[0].dtype.is_half
        return (types[0],)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """``S + S.T``, where ``S = y^-T P y^-1`` and P is the lower triangle of ``y.T @ dy / 2``, half on the diagonal
        (Murray, "Differentiation of the Cholesky decomposition", 2016)."""
        y, dy = node.out, only(dys)
        whole = product(b, y, dy, turn_x=True)
        half, zero = scaled(b, 0.5, whole), constant(b, 0.0, whole)
        half = b(where, triangle(b, y, 0), b(where, triangle(b, y, -1), half, scaled(b, 0.5, half)), zero)
        for _ in range(2):
            half = turned(b, b(triangular_solve, y, half, upper=False, transposed=True, unit=False))
        return (b(add, half, turned(b, half)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        x = x.astype(np.result_type(x.dtype, np.float32))
        half = x.dtype.type(0.5)
        with np.errstate(all="ignore"):
            y = half * x + half * x.swapaxes(-1, -2)
            for j in range(x.shape[-1]):
                y[..., j, j] = np.sqrt(y[..., j, j])
                y[..., j + 1 :, j] /= y[..., j, j, None]
                column = y[..., j + 1 :, j]
                y[..., j + 1 :, j + 1 :] -= column[..., :, None] * column[..., None, :]
        return [np.ascontiguousarray(lower_part(y)).astype(xs[0].dtype)]

    def cost(self, node: Node) -> Cost:
        x = node.types[0]
        return Cost(prod(x.ints) * x.ints[-1] // 3, 2 * x.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = batched(axes, node.types[0].rank)
        return None if axis is None else (axis,)


cholesky = register(Cholesky())


class CholeskyFunction(Function):
    """cholesky(x): the lower triangle ``y`` with ``y @ y.T = x``, of a symmetric positive definite matrix.

    ``x`` is [n, n] or a batch [..., n, n]. Of a matrix that is not symmetric, ``(x + x.T) / 2`` counts. If it is not
    positive definite, results are nan: add a small number to the diagonal, ``x + 1e-6 * eye(n)``. The logarithm of
    the determinant is ``2 * sum(log(einsum("ii->i", y)))``, and ``x^-1 @ b`` is
    ``triangular_solve(y, triangular_solve(y, b), transpose=true)``.

    given: x: [B, 4, 4]
    >>> cholesky(x @ transpose(x) + eye(4))
    """

    name = "cholesky"

    def build(self, call: Call, x: Value) -> Value:
        require_square(self.name, x.type)
        return as_given(call, call.emit(cholesky, computed(call, x)), x)


function(CholeskyFunction())
