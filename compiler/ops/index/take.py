"""Subscripts by integer tensors: take along one axis, and joint_index, which makes one index of two axes' indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.sizes import Poly, Size, bounds, product
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, only, require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.index.embedding import existing, gather_rows, nothing, scatter_rows_add
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.views import reshape, transpose

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_BEYOND_I32: Final = frozenset({DType.I64, DType.U64, DType.U32})  # their numbers need not fit an i32


class Take(Op):
    """take(x, ids): the parts of ``x`` at the integers ``ids`` along ``axis`` (from 0), which the axes of ids replace.

    Element [i, j, k] of the result is ``x[i, ids[j], k]`` for axis 1. An id outside 0..n-1 gives nan, or 0 for
    integers; in data it is refused.
    """

    name = "take"
    moves = True
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (x, ids), axis = types, int_attr(attrs, "axis")
        assert 0 <= axis < x.rank
        require_kind("take", ids.dtype, "int")
        return (TensorType(x.dtype, (*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """Rows of one id are added in their order, as for ``gather_rows``."""
        (x, ids), axis = node.inputs, int_attr(node.attrs, "axis")
        rest, last = range(x.type.rank), axis + ids.type.rank
        first = (*range(axis, last), *range(axis), *range(last, node.out.type.rank))
        table = b(scatter_rows_add, b(transpose, only(dys), perm=first), ids, count=x.type.ints[axis])
        return b(transpose, table, perm=(*rest[1 : axis + 1], 0, *rest[axis + 1 :])), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (x, ids), axis = xs, int(attrs["axis"])
        safe, wrong = existing(ids, x.shape[axis])
        if not x.shape[axis]:
            return [np.full((*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]), nothing(x.dtype))]
        y = np.take(x, safe, axis=axis)
        y[(slice(None),) * axis + (wrong,)] = nothing(x.dtype)
        return [y]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[1].bytes + 2 * node.types[0].bytes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]) if index == 1 else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        (x, ids), axis = axes, int_attr(node.attrs, "axis")
        if x is None:
            return (None if ids is None else axis + ids,)
        if ids is not None or x == axis:
            return None
        return (x if x < axis else x + node.input_types[1].rank - 1,)


class JointIndex(Elementwise):
    """joint_index(i, j): ``i * columns + j``, the index of element [i, j] of a matrix of ``rows`` and ``columns``.

    -1 if i or j is outside of its axis. Both are i32 or i64, and broadcast.
    """

    name = "joint_index"
    arity = 2
    accepts = "int"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        (i, j), rows, columns = xs, int_attr(attrs, "rows"), int_attr(attrs, "columns")
        inside = [tree.call("and", x >= 0, x < size) for x, size in ((i, rows), (j, columns))]
        return tree.select(tree.call("and", *inside), i * columns + j, -1)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        (i, j), rows, columns = xs, int(attrs["rows"]), int(attrs["columns"])
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
        return np.where(inside, i * i.dtype.type(columns) + j, i.dtype.type(-1))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        size = node.attrs["columns" if index else "rows"]
        assert isinstance(size, int | Poly)
        return 0, size


take = register(Take())
joint_index = register(JointIndex())


def subscripted(call: Call, x: Value, index: Mapping[int, Value]) -> Value:
    """``x`` at the integer tensors ``index`` of these axes, which broadcast together, as in numpy.

    Their axes come to the place of the first indexed axis if the indexed axes are neighbours, else to the front."""
    for ids in index.values():
        require_kind("[ ]", ids.type.dtype, "int")
    axes = sorted(index)
    first, count = axes[0], len(axes)
    if axes[-1] - first >= count:
        x = call.emit(transpose, x, perm=(*axes, *(a for a in range(x.type.rank) if a not in index)))
        first = 0
    shape = x.type.shape
    own = shape[first : first + count]
    ids = joint(call, [index[axis] for axis in axes], own)
    if count > 1:
        x = call.emit(reshape, x, shape=(*shape[:first], product(own), *shape[first + count :]))
    return call.emit(take, x, ids, axis=first) if first else call.emit(gather_rows, x, ids)


def joint(call: Call, index: Sequence[Value], sizes: Sequence[Size]) -> Value:
    """One index of the elements of neighbouring axes of these sizes, in row-major order, for an index of each axis."""
    ids, size = index[0], sizes[0]
    for other, n in zip(index[1:], sizes[1:]):
        ids, size = _joined(call, (ids, size), (other, n)), size * n
    return ids


def _joined(call: Call, i: tuple[Value, Size], j: tuple[Value, Size]) -> Value:
    """The joint index of two indices, each with the size of its axis."""
    wide = bounds(i[1] * j[1])[1] >= I32_ELEMENTS or _BEYOND_I32.intersection(x.type.dtype for x, _ in (i, j))
    dtype = DType.I64 if wide else DType.I32
    same = (x if x.type.dtype is dtype else call.emit(cast, x, dtype=dtype) for x, _ in (i, j))
    try:
        return call.emit(joint_index, *same, rows=i[1], columns=j[1])
    except Mismatch as wrong:
        why = f"the indices {i[0].type} and {j[0].type} do not broadcast: {wrong.why}"
        raise Mismatch(why, wrong.help, wrong.code) from None
