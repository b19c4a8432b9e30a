"""Scatter along an axis: the op scatter_reduce, and the functions scatter with its modes and scatter_add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.function import Axis, Call, Function, Shape, function
from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.special import larger, lesser
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, str_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.constant import as_attr, constant, full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, div, mul, only, require_kind
from dslc.compiler.ops.elementwise.division import mod
from dslc.compiler.ops.elementwise.logic import eq, ge, logical_and
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.index.embedding import existing, gather_rows
from dslc.compiler.ops.index.indexing import gather, of_elements, require_agreement, require_scattered, scatter_add
from dslc.compiler.ops.index.sort import sort
from dslc.compiler.ops.index.take import take
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.slicing import pad, slice_
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: mode of the function -> the attribute ``how`` of the op
_HOW: Final = {"mul": "prod", "max": "max", "min": "min"}


class ScatterReduce(Op):
    """scatter_reduce(x, src, index): ``x`` with each ``src`` combined with the element at its index along ``axis``.

    Attribute ``how``: prod, max or min. Element [i, index[i, j, k], k] is combined with ``src[i, j, k]`` for axis 1.
    ``index`` has the shape of ``src``, or no axes after the axis, for whole rows.
    An index outside 0..n-1 makes its whole line along the axis nan. For integers it has no effect, or the line becomes
    the attribute ``lost``, which is at least all its elements; ``how`` is then max. Integers wrap around.

    Elements that are equal to a maximum or a minimum share its gradient evenly, those of x and of src alike.
    """

    name = "scatter_reduce"
    needs = (frozenset({"x0", "x1", "x2", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (x, src, index), axis = types, int_attr(attrs, "axis")
        assert 0 <= axis < x.rank and str_attr(attrs, "how") in _HOW.values()
        assert "lost" not in attrs or (x.dtype.is_int and attrs["how"] == "max")
        require_kind("scatter", x.dtype, "number")
        require_scattered("scatter", x, index, axis)
        _require_fit("scatter", x, src, TensorType(index.dtype, (*index.shape, *src.shape[index.rank :])), axis)
        return (x,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        if str_attr(node.attrs, "how") == "prod":
            return self._of_product(node, only(dys), b)
        (x, src, index), y, axis = node.inputs, node.out, node.attrs["axis"]
        one, zero = constant(b, 1.0, y), constant(b, 0.0, y)
        own, given = b(eq, x, y), b(eq, src, b(gather, y, index, axis=axis))
        hits = [b(where, hit, one, zero) for hit in (own, given)]
        equal = b(add, hits[0], _added(b, node, hits[1]))
        share = b(div, only(dys), b(where, b(eq, equal, zero), one, equal))
        return b(mul, hits[0], share), b(mul, hits[1], b(gather, share, index, axis=axis)), None

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None] | None:
        """``_of_product`` divides by elements that are not 0, but the second derivative by two zeros is not 0."""
        return [_multiplied(node, b)] if node.attrs["how"] == "prod" else None

    def _of_product(self, node: Node, dy: Value, b: Builder) -> Gradients:
        (x, src, index), axis = node.inputs, node.attrs["axis"]
        one, zero = constant(b, 1.0, x), constant(b, 0.0, x)
        empty = [b(eq, each, zero) for each in (x, src)]
        rest = [b(where, none, one, each) for none, each in zip(empty, (x, src))]
        product = b(self, *rest, index, axis=axis, how="prod")
        counts = [b(where, none, one, zero) for none in empty]
        zeros = b(add, counts[0], _added(b, node, counts[1]))
        slope, found = b(mul, dy, product), []
        for none, each, at in ((empty[0], rest[0], None), (empty[1], rest[1], index)):
            here, others = (v if at is None else b(gather, v, at, axis=axis) for v in (slope, zeros))
            # the zeros among all elements but this one must be none
            alone = b(eq, others, b(where, none, one, zero))
            found.append(b(where, alone, b(div, here, each), zero))
        return *found, None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (x, src, index), axis = xs, int(attrs["axis"])
        index = of_elements(index, src.shape)
        combines: dict[str, Callable[[Array, Array], Array]] = {"prod": np.multiply, "max": larger, "min": lesser}
        combine = combines[attrs["how"]]
        y = x.copy()
        safe, wrong = existing(index, x.shape[axis])
        with np.errstate(all="ignore"):
            for j in range(index.shape[axis] if x.shape[axis] else 0):
                ids, new, lost = (np.take(a, [j], axis) for a in (safe, src, wrong))
                old = np.take_along_axis(y, ids, axis)
                np.put_along_axis(y, ids, np.where(lost, old, combine(old, new)), axis)
        if y.dtype.kind == "f" or "lost" in attrs:
            y = np.where(wrong.any(axis, keepdims=True), y.dtype.type(attrs.get("lost", np.nan)), y)
        return [y]

    def cost(self, node: Node) -> Cost:
        src = node.input_types[1]
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(src.bytes // src.dtype.itemsize, moved)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]) if index == 2 else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] == axes[1] == axes[2] != int_attr(node.attrs, "axis") else None


def _multiplied(node: Node, b: Builder) -> Value:
    """The product by multiplications alone: the elements of each index side by side, those of one index multiplied
    over 1, 2, 4, ... neighbours."""
    (x, src, index), axis = node.inputs, int_attr(node.attrs, "axis")
    count, rank = src.type.ints[axis], src.type.rank
    if not count or not x.type.elements:
        return x
    if index.type.rank < rank:
        index = b(reshape, index, shape=(*index.type.ints, *(1 for _ in range(rank - index.type.rank))))
        index = b(expand, index, shape=src.type.ints)
    ids, order = b.node(sort, index, axis=axis, descending=False).outputs
    found = b(gather, src, order, axis=axis)
    none, whole, each = (0,) * rank, src.type.ints, (1,) * rank

    def earlier(value: Value, by: int, fill: float) -> Value:
        moved = b(pad, value, low=_on(axis, rank, by), high=none, interior=none, value=fill)
        return b(slice_, moved, starts=none, stops=whole, steps=each)

    by, one, places = 1, constant(b, 1.0, src), _places(b, node)
    while by < count:
        alike = b(logical_and, b(eq, ids, earlier(ids, by, 0.0)), b(ge, places, constant(b, by, places)))
        found = b(mul, found, b(where, alike, earlier(found, by, 1.0), one))
        by *= 2
    nowhere = b(full, value=-1, dtype=DType.I32, shape=x.type.shape)
    last = b(scatter_reduce, nowhere, b(expand, places, shape=whole), ids, axis=axis, how="max", lost=count)
    zero = constant(b, 0, last)
    factor = b(gather, found, b(maximum, last, zero), axis=axis)  # a place after the last gives nan
    return b(where, b(ge, last, zero), b(mul, x, factor), x)


def _on(axis: int, rank: int, value: int) -> tuple[int, ...]:
    return tuple(value if i == axis else 0 for i in range(rank))


def _places(b: Builder, node: Node) -> Value:
    """The places of ``src`` along the axis, which broadcast to it."""
    src, axis = node.input_types[1], int_attr(node.attrs, "axis")
    count = src.ints[axis]
    return b(reshape, b(arange, shape=(count,), start=0, step=1), shape=_line(src, count, axis))


def _added(b: Builder, node: Node, src: Value) -> Value:
    """``src`` added up at the indices of a scatter_reduce."""
    axis = int_attr(node.attrs, "axis")
    return b(scatter_add, src, node.inputs[2], axis=axis, count=node.inputs[0].type.shape[axis])


def _require_fit(name: str, x: TensorType, src: TensorType, index: TensorType, axis: int) -> None:
    if src.shape != index.shape:
        swapped = x.shape == index.shape
        help = f"the target comes first: `{name}(target, index, src)`" if swapped else "give each element its index"
        raise Mismatch(f"`{name}` of {src} at indices {index}", help, "E0302")
    require_agreement(name, x, index, axis)
    if src.dtype is not x.dtype:
        raise Mismatch(f"`{name}` of {src} into {x}", "convert one with `cast`", "E0204")


scatter_reduce = register(ScatterReduce())


class Scatter(Function):
    """scatter(x, index, src, axis=-1, mode="replace", include_self=true): ``x`` with ``src`` put in along an axis.

    ``src`` and the integers ``index`` have the shape of ``x`` except for the size of the axis. A vector ``index`` has
    an index for each part of ``src`` along the axis. ``mode``: "replace", where the last one of equal indices wins in
    every run; or "add", "mul", "max", "min". With ``include_self=false`` the elements of x that get a src are not
    combined with it. An index outside of x makes its line along the axis nan; in data it is refused.

    Gradients go to the elements that are in the result. Equal greatest or least ones share it evenly.

    given: x: [B, 8], t: i32[B, 2], y: [B, 2]
    >>> scatter(x, t, y, axis=1, mode="max")
    """

    name = "scatter"

    def build(
        self, call: Call, x: Value, index: Value, src: Value, axis: Axis = -1, mode: str = "replace",
        include_self: bool = True,
    ) -> Value:  # fmt: skip
        if mode not in ("replace", "add", *_HOW):
            raise Mismatch(f'there is no mode "{mode}"', 'one of "replace", "add", "mul", "max", "min"', "E0209")
        require_kind("scatter", x.type.dtype, "any" if mode == "replace" else "number")
        at = _placed(self.name, x, index, src, axis)
        if mode == "replace":
            return _replaced(call, x, index, src, at)
        if not include_self:
            x = _without_self(call, x, index, at, mode)
        if mode == "add":
            return _sum(call, x, index, src, at)
        return call.emit(scatter_reduce, x, src, _repeated(call, index, src, at), axis=at, how=_HOW[mode])


class ScatterAddFunction(Function):
    """scatter_add(x, index, src, axis=-1): ``x`` with each element of ``src`` added at its index along an axis.

    ``src`` and the integers ``index`` have the shape of ``x`` except for the size of the axis; a vector ``index`` has
    an index for each part of ``src`` along the axis. Elements with equal indices are added in row-major order. It is
    ``scatter`` with the mode "add".

    given: x: [B, 8], t: i32[B, 2], y: [B, 2]
    >>> scatter_add(x, t, y, axis=1)
    """

    name = "scatter_add"

    def build(self, call: Call, x: Value, index: Value, src: Value, axis: Axis = -1) -> Value:
        require_kind(self.name, x.type.dtype, "number")
        return _sum(call, x, index, src, _placed(self.name, x, index, src, axis))


def _of_parts(index: Value, src: Value) -> bool:
    """Whether ``index`` is a vector with an index for each part of ``src``."""
    return index.type.rank == 1 < src.type.rank


def _placed(name: str, x: Value, index: Value, src: Value, axis: Axis) -> int:
    """The axis from 0, along which all of them fit."""
    at = from_zero(name, x.type, axis)
    of = _of_elements(name, index.type, src.type, at) if _of_parts(index, src) else index.type
    _require_fit(name, x.type, src.type, of, at)
    return at


def _repeated(call: Call, index: Value, src: Value, axis: int) -> Value:
    """An index for each element of ``src``."""
    if not _of_parts(index, src):
        return index
    line = call.emit(reshape, index, shape=_line(src.type, index.type.shape[0], axis))
    return call.emit(expand, line, shape=src.type.shape)


def _sum(call: Call, x: Value, index: Value, src: Value, axis: int) -> Value:
    """``x`` plus ``src`` added up at its indices."""
    index = _repeated(call, index, src, axis)
    return call.emit(add, x, call.emit(scatter_add, src, index, axis=axis, count=x.type.shape[axis]))


def _of_elements(name: str, index: TensorType, src: TensorType, axis: int) -> TensorType:
    """The type of a vector of indices along the axis, repeated for each element of ``src``."""
    if not axis < src.rank or index.shape[0] != src.shape[axis]:
        fits = [i for i, size in enumerate(src.shape) if size == index.shape[0]]
        help = (
            f"for one index per part along axis {fits[0]}, write `axis={fits[0]}`"
            if fits
            else "give each part its index"
        )
        raise Mismatch(f"`{name}` of {src} along axis {axis} at {index}", help, "E0302")
    return TensorType(index.dtype, src.shape)


def _line(x: TensorType, count: Size, axis: int) -> tuple[Size, ...]:
    """The shape of a vector along the axis that broadcasts to x."""
    return (*(1 for _ in range(axis)), count, *(1 for _ in range(axis + 1, x.rank)))


def _last(call: Call, shape: Shape, index: Value, axis: int, floats: bool) -> Value:
    """The place along the axis of the last index of each element of a tensor of this shape, -1 for none.

    In lines of floats with an index outside of the tensor, it is the number of indices."""
    count = index.type.shape[axis]
    places = call.emit(arange, shape=(count,), start=0, step=1)
    if index.type.rank > 1:
        line = call.emit(reshape, places, shape=_line(index.type, count, axis))
        places = call.emit(expand, line, shape=index.type.shape)
    lost: dict[str, Attr] = {"lost": count} if floats else {}
    none = call.full(-1, DType.I32, shape)
    return call.emit(scatter_reduce, none, places, index, axis=axis, how="max", **lost)


def _found(call: Call, x: TensorType, index: Value, axis: int) -> tuple[Value, Value]:
    """``_last`` for the elements of x, or for its parts if ``index`` is a vector; and where it is not -1, which
    broadcasts to x."""
    if index.type.rank == x.rank:
        last = _last(call, x.shape, index, axis, x.dtype.is_float)
        return last, call.emit(ge, last, call.full(0, DType.I32))
    last = _last(call, x.shape[axis : axis + 1], index, 0, x.dtype.is_float)
    known = call.emit(ge, last, call.full(0, DType.I32))
    return last, call.emit(reshape, known, shape=_line(x, x.shape[axis], axis))


def _replaced(call: Call, x: Value, index: Value, src: Value, axis: int) -> Value:
    """Reads the last src of each element, to which its gradient goes; a place after the last src gives nan.

    Elements without a src read any other, as a place that does not exist would make gradients nan. Parts read
    different ones, since the gradients of one part are added one after the other."""
    last, replaced = _found(call, x.type, index, axis)
    zero = call.full(0, DType.I32)
    if last.type.rank == x.type.rank:
        found = call.emit(gather, src, call.emit(maximum, last, zero), axis=axis)
        return call.emit(where, replaced, found, x)
    size, others = src.type.shape[axis], zero
    if isinstance(size, int) and size > 0:
        others = call.emit(arange, shape=last.type.shape, start=0, step=1)
        others = call.emit(mod, others, call.full(size, DType.I32))
    place = call.emit(where, call.emit(ge, last, zero), last, others)
    found = call.emit(take, src, place, axis=axis) if axis else call.emit(gather_rows, src, place)
    return call.emit(where, replaced, found, x)


def _without_self(call: Call, x: Value, index: Value, axis: int, mode: str) -> Value:
    """``x`` with the neutral element of the mode where it gets a src."""
    dtype = x.type.dtype
    low, high = dtype.limits if dtype.is_int else (float("-inf"), float("inf"))
    value = as_attr({"add": 0, "mul": 1, "max": low, "min": high}[mode])
    neutral = call.emit(full, value=value, dtype=dtype, shape=())
    return call.emit(where, _found(call, x.type, index, axis)[1], neutral, x)


scatter = function(Scatter())
function(ScatterAddFunction())
