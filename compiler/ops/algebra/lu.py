"""lu: a matrix as a product of triangles, with its rows in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.algebra.matrices import batched, product, require_square, triangle, turned
from dslc.compiler.ops.algebra.triangular import triangular_solve
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.index.sort import unsort
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Lu(Op):
    """lu(x): triangles l and u with ``l @ u = x[order]``, of matrices [*L, n, n]; Gaussian elimination with row pivots.

    Results: both in one matrix, l below the diagonal, whose own diagonal is ones; ``order``, i32 [*L, n]; and i32 [*L],
    1 for an even number of swapped rows, -1 for an odd one. A pivot is the greatest by magnitude in its column, of
    equal ones the first, and nan if one is there. Below a pivot of 0, l is 0.
    """

    name = "lu"
    wide = "exponent"
    statistics = (0,)
    needs = (frozenset({"y0", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        require_square(self.name, x)
        assert not x.dtype.is_half
        return x, TensorType(DType.I32, x.shape[:-1]), TensorType(DType.I32, x.shape[:-2])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """``l^-T P u^-T`` with its rows in the order of x, where P is ``l.T @ dy`` below the diagonal and ``dy @ u.T``
        from it on."""
        y, order, dy = node.outputs[0], node.outputs[1], only(dys[:1])
        zero, one = constant(b, 0.0, y), constant(b, 1.0, y)
        below, from_it = triangle(b, y, -1), triangle(b, y, 0)
        lower = b(where, below, y, b(where, from_it, one, zero))
        upper = b(where, below, zero, y)
        parts = b(where, below, product(b, lower, dy, turn_x=True), product(b, dy, upper, turn_y=True))
        left = b(triangular_solve, y, parts, upper=False, transposed=True, unit=True)
        rows = turned(b, b(triangular_solve, y, turned(b, left), upper=True, transposed=False, unit=False))
        return (b(unsort, rows, each_column(b, order, y), axis=y.type.rank - 2),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        y = x.astype(np.result_type(x.dtype, np.float32), copy=True)
        count = x.shape[-1]
        order = np.broadcast_to(np.arange(count, dtype=np.int32), x.shape[:-1]).copy()
        sign = np.ones(x.shape[:-2], np.int32)
        with np.errstate(all="ignore"):
            for k in range(count):
                at = k + np.argmax(np.abs(y[..., k:, k]), axis=-1)
                sign = np.where(at == k, sign, -sign)
                for each in (y, order[..., None]):
                    there = np.broadcast_to(at[..., None, None], (*at.shape, 1, each.shape[-1]))
                    one, other = each[..., k : k + 1, :].copy(), np.take_along_axis(each, there, -2)
                    np.put_along_axis(each, there, one, -2)
                    each[..., k : k + 1, :] = other
                pivot = y[..., k, k, None]
                y[..., k + 1 :, k] = np.where(pivot == 0, y[..., k + 1 :, k], y[..., k + 1 :, k] / pivot)
                y[..., k + 1 :, k + 1 :] -= y[..., k + 1 :, k, None] * y[..., k, None, k + 1 :]
        return [y.astype(x.dtype), order, np.asarray(sign, np.int32)]

    def cost(self, node: Node) -> Cost:
        x = node.types[0]
        return Cost(2 * prod(x.ints) * x.ints[-1] // 3, x.bytes + sum(t.bytes for t in node.types))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = batched(axes, node.types[0].rank)
        return None if axis is None else (axis, axis, axis)


def each_column(b: Builder, order: Value, like: Value) -> Value:
    """The order of the rows [*L, n] as an index for each element of the matrices ``like`` [*L, n, k]."""
    return b(expand, b(reshape, order, shape=(*order.type.shape, 1)), shape=like.type.shape)


lu = register(Lu())
