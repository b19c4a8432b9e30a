"""Indexing along an axis: gather, and scatter_add, its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Poly, Size
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only, require_kind
from dslc.compiler.ops.index.embedding import existing, nothing
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def require_agreement(op: str, x: TensorType, index: TensorType, axis: int) -> None:
    """Raises Mismatch unless ``index`` has an integer dtype and the shape of x except for the size of ``axis``."""
    require_kind(op, index.dtype, "int")
    if x.rank != index.rank or any(i != axis and a != b for i, (a, b) in enumerate(zip(x.shape, index.shape))):
        why = f"`{op}` along axis {axis} of {x} with indices {index}"
        rows = _whole_rows(x, index, axis) if op == "gather" else None
        raise Mismatch(why, rows or f"all sizes but that of axis {axis} must agree", "E0302")


def _whole_rows(x: TensorType, index: TensorType, axis: int) -> str | None:
    """How to pick whole rows by an index with fewer axes; None if it does not fit that either."""
    if not axis < index.rank < x.rank or index.shape[:axis] != x.shape[:axis]:
        return None
    if axis == 0:
        return "whole rows are `x[index]`"
    if axis > 1:
        return None
    size = x.shape[0]
    ones = ", 1" * (index.rank - 1)
    return f"whole rows are `x[rows, index]`, with `rows = reshape(arange({size}), [{size}{ones}])`"


def of_rows(x: TensorType, index: TensorType, axis: int) -> bool:
    """Whether ``index`` has no axes after ``axis``, and so one index for whole rows of ``x``."""
    return index.rank == axis + 1 < x.rank and index.shape[:axis] == x.shape[:axis]


def require_scattered(op: str, x: TensorType, index: TensorType, axis: int) -> None:
    """``require_agreement``, unless the index is one of rows."""
    if of_rows(x, index, axis):
        require_kind(op, index.dtype, "int")
    else:
        require_agreement(op, x, index, axis)


def of_elements(index: Array, shape: tuple[int, ...]) -> Array:
    """The index of each element of a tensor of this shape, given an index of rows or of elements."""
    rest = shape[index.ndim :]
    return np.broadcast_to(index.reshape(*index.shape, *(1 for _ in rest)), (*index.shape, *rest))


def _moved(node: Node) -> int:
    return sum(t.bytes for t in (*node.input_types, *node.types))


def _places(index: Array, axis: int) -> tuple[Array, ...]:
    """The full index of each element: its own position except along ``axis``."""
    places: list[Array] = list(np.indices(index.shape, sparse=True))
    places[axis] = index
    return tuple(places)


class Gather(Op):
    """gather(x, index): the elements of ``x`` at the integers ``index`` along ``axis`` (from 0), shaped as ``index``.

    Element [i, j, k] of the result is ``x[i, index[i, j, k], k]`` for axis 1. All other sizes must agree; or ``index``
    has no axes after the axis: then [i, j] is ``x[i, index[i, j]]``. An index outside 0..n-1 gives nan, or 0 for
    integers; in data it is refused.
    """

    name = "gather"
    moves = True
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, index = types
        axis = int_attr(attrs, "axis")
        assert 0 <= axis < x.rank
        require_scattered("gather", x, index, axis)
        return (TensorType(x.dtype, (*index.shape, *x.shape[index.rank :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, index = node.inputs
        axis = int_attr(node.attrs, "axis")
        return b(scatter_add, only(dys), index, axis=axis, count=x.type.shape[axis]), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, axis = xs[0], int(attrs["axis"])
        index = of_elements(xs[1], x.shape)
        safe, wrong = existing(index, x.shape[axis])
        if not x.shape[axis]:
            return [np.full(index.shape, nothing(x.dtype))]
        return [np.where(wrong, nothing(x.dtype), np.take_along_axis(x, safe, axis))]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[1].bytes + 2 * node.types[0].bytes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]) if index == 1 else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = int_attr(node.attrs, "axis")
        if axes[0] is None and axes[1] in (None, axis):
            return (axes[1],)
        return (axes[0],) if axes[0] == axes[1] != axis else None


class ScatterAdd(Op):
    """scatter_add(src, index): zeros of size ``count`` along ``axis`` (from 0), with each ``src`` added at its index.

    The gradient of gather: element [i, index[i, j, k], k] gets ``src[i, j, k]`` for axis 1. ``src`` and ``index`` have
    one shape, or ``index`` has no axes after the axis, for whole rows. Elements of one index are added in row-major
    order, so the result is the same every time. An index outside 0..count-1 makes its whole line along the axis nan;
    for integers, it adds nothing. Integers wrap around.
    """

    name = "scatter_add"
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        src, index = types
        axis, count = int_attr(attrs, "axis"), attrs["count"]
        assert isinstance(count, int | Poly) and not isinstance(count, bool)
        assert 0 <= axis < src.rank
        require_kind("scatter_add", src.dtype, "number")
        require_scattered("scatter_add", src, index, axis)
        if src.shape[: index.rank] != index.shape:
            raise Mismatch(f"`scatter_add` of {src} at indices {index}", "give each element its index", "E0302")
        return (TensorType(src.dtype, (*src.shape[:axis], count, *src.shape[axis + 1 :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return b(gather, only(dys), node.inputs[1], axis=node.attrs["axis"]), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        src, axis, count = xs[0], int(attrs["axis"]), int(attrs["count"])
        index = of_elements(xs[1], src.shape)
        wrong = existing(index, count)[1]
        y = np.zeros((*src.shape[:axis], count, *src.shape[axis + 1 :]), src.dtype)
        with np.errstate(all="ignore"):
            np.add.at(y, tuple(place[~wrong] for place in np.broadcast_arrays(*_places(index, axis))), src[~wrong])
        if y.dtype.kind == "f":
            y = np.where(wrong.any(axis, keepdims=True), y.dtype.type(np.nan), y)
        return [y]

    def cost(self, node: Node) -> Cost:
        src = node.input_types[0]
        return Cost(src.bytes // src.dtype.itemsize, _moved(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        count = node.attrs["count"]
        return (0, count) if index == 1 and isinstance(count, int | Poly) else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] == axes[1] != int_attr(node.attrs, "axis") else None


gather = register(Gather())
scatter_add = register(ScatterAdd())


class GatherFunction(Function):
    """gather(x, index, axis=-1): the elements of ``x`` at integers ``index`` along an axis, shaped as ``index``.

    ``index`` has the rank of ``x`` and its sizes except along the axis, as in numpy's ``take_along_axis``. Rows of a
    table by their number are ``embedding``.

    given: x: [B, 8], t: i32[B, 2]
    >>> gather(x, t, axis=1)
    """

    name = "gather"

    def build(self, call: Call, x: Value, index: Value, axis: Axis = -1) -> Value:
        at = from_zero(self.name, x.type, axis)
        require_agreement(self.name, x.type, index.type, at)
        return call.emit(gather, x, index, axis=at)


function(GatherFunction())
