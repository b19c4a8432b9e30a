"""Pooling over windows of ``[batch, channels, *space]``: maxpool, avgpool and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple, shape_attr
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import add, mul
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.division import floordiv, mod
from dslc.compiler.ops.index.indexing import gather
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.windows import inside, padded, spatial, spatial_axes, taps, window_count
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _index_dtype(k: Sequence[int]) -> DType:
    """The dtype of an index in a window: u8 for up to 256 positions."""
    return DType.U8 if prod(k) <= 256 else DType.I32


def _infer(op: str, x: TensorType, attrs: Attrs) -> TensorType:
    axes = spatial_axes(op, x)
    if not x.dtype.is_float:
        raise Mismatch(f"`{op}` needs a float tensor, not {x.dtype}", 'convert it: `cast(x, "float")`', "E0204")
    k, stride, pad = (int_tuple(attrs, name) for name in ("k", "stride", "pad"))
    more = lacking(attrs)
    assert len(k) == len(stride) == len(pad) == len(more) == axes, "one number for each spatial axis"
    if any(2 * p > n for p, n in zip(pad, k)):
        raise Mismatch(f"`pad` of `{op}` is over half of its window", f"`pad={min(k) // 2}` or less", "E0209")
    space = tuple(window_count(op, x.shape[2 + i] + more[i], k[i], stride[i], pad[i], 1, 2 + i) for i in range(axes))
    return TensorType(x.dtype, (*x.shape[:2], *space))


def _infer_back(op: str, dy: TensorType, attrs: Attrs) -> TensorType:
    """The type of the pooled tensor, whose spatial size is the attribute ``size``."""
    dx = TensorType(dy.dtype, (*dy.shape[:2], *shape_attr(attrs, "size")))
    forth = _infer(op, dx, attrs)
    if forth != dy:
        raise Mismatch(f"the pool gives {forth}, its gradient is {dy}", None, "E0302")
    return dx


def lacking(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """How many elements the last windows of a max pool may lack at the end of each spatial axis."""
    return int_tuple(attrs, "more") if "more" in attrs else (0,) * len(int_tuple(attrs, "k"))


def _geometry(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("k", "stride", "pad", "more") if name in node.attrs}


def _windows(x: Array, attrs: Mapping[str, Any], fill: float) -> list[Array]:
    """For each position in the window, in row-major order, a view of padded x with that element of every window."""
    k, stride, pad = (int_tuple(attrs, name) for name in ("k", "stride", "pad"))
    wide = padded(x, pad, fill)
    if any(more := lacking(attrs)):
        wide = np.pad(wide, [(0, 0), (0, 0), *((0, n) for n in more)], constant_values=fill)
    count = tuple((n - m) // s + 1 for n, m, s in zip(wide.shape[2:], k, stride))
    return [wide[spatial(where)] for _, where in taps(k, stride, (1,) * len(k), count)]


def _first_elements(attrs: Mapping[str, Any], count: Sequence[int]) -> Array:
    """For each window the index of its first element that is not padding: 0 except at the image's lower edges."""
    k, stride, pad = (int_tuple(attrs, name) for name in ("k", "stride", "pad"))
    place = np.zeros((), np.int64)
    for n, size, step, edge in zip(count, k, stride, pad):
        place = np.add.outer(place * size, np.maximum(edge - step * np.arange(n), 0))
    return place


def _rows(axes: Sequence[int | None], outputs: int) -> tuple[int | None, ...] | None:
    """Pools treat batch and channels independently."""
    axis = axes[0]
    return (axis,) * outputs if axis is None or axis < 2 else None


class MaxPool(Op):
    """maxpool(x): the largest element of each window of x ``[B, C, *space]``, and its index in the window.

    Attributes, one number for each spatial axis: ``k``, ``stride``, ``pad`` (at most half the window), and maybe
    ``more``, the elements that the last window may lack at the end, where it has at least one. The second output is the
    row-major index, u8 (i32 for windows of more than 256 elements). The first of equal elements wins, and nan counts as
    largest. A window never selects padding, even if all its elements are minus infinity, as in PyTorch.
    """

    name = "maxpool"
    kernel_kind = "windows"
    needs = (frozenset({"y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        y = _infer("maxpool", types[0], attrs)
        return y, TensorType(_index_dtype(int_tuple(attrs, "k")), y.shape)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if dys[0] is None:
            return (None,)
        size = node.inputs[0].type.shape[2:]
        return (b(maxpool_grad, dys[0], node.outputs[1], **_geometry(node), size=size),)

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        x, (y, place) = node.inputs[0], node.outputs
        lines = b(reshape, x, shape=(*x.type.ints[:2], prod(x.type.ints[2:])))
        index = b(reshape, _in_image(node, place, b), shape=(*y.type.ints[:2], prod(y.type.ints[2:])))
        return [b(reshape, b(gather, lines, index, axis=2), shape=y.type.ints), None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        windows = _windows(xs[0], attrs, -np.inf)
        dtype = numpy_dtype(_index_dtype(attrs["k"]).value)
        largest = windows[0].copy()
        place = np.broadcast_to(_first_elements(attrs, largest.shape[2:]).astype(dtype), largest.shape).copy()
        nans = bool(np.isnan(xs[0]).any())
        for i, window in enumerate(windows[1:], 1):
            better = window > largest
            if nans:
                better |= np.isnan(window) & ~np.isnan(largest)
            np.copyto(largest, window, where=better)  # the first of equal elements; both zeros are equal
            np.maximum(place, better.astype(dtype) * dtype.type(i), out=place)  # indices ascend
        return largest, place

    def cost(self, node: Node) -> Cost:
        y, place = node.types
        return Cost(prod(y.ints) * prod(int_tuple(node.attrs, "k")), node.input_types[0].bytes + y.bytes + place.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, 2)


class MaxPoolGrad(Op):
    """maxpool_grad(dy, place): adds each dy to the element that its window selected.

    Attributes as for ``maxpool``, and ``size``, the spatial size of the result.
    """

    name = "maxpool_grad"
    kernel_kind = "windows"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        dy, place = types
        assert place == TensorType(_index_dtype(int_tuple(attrs, "k")), dy.shape)
        return (_infer_back("maxpool", dy, attrs),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `maxpool` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        dy, place = xs
        return (_spread([np.where(place == i, dy, 0) for i in range(prod(attrs["k"]))], dy, attrs),)

    def cost(self, node: Node) -> Cost:
        dy, place = node.input_types
        return Cost(prod(dy.ints), dy.bytes + place.bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, 1) if axes[0] == axes[1] else None


def _in_image(node: Node, place: Value, b: Builder) -> Value:
    """The row-major index in the image, i32, of each element that a window selected."""
    k, stride, edge = (int_tuple(node.attrs, name) for name in ("k", "stride", "pad"))
    size, count = node.inputs[0].type.ints[2:], place.type.ints[2:]

    def number(value: int) -> Value:
        return b(full, value=value, dtype=DType.I32, shape=())

    rest = b(cast, place, dtype=DType.I32)
    index, stretch = number(0), 1
    for axis in reversed(range(len(k))):
        first = b(arange, start=-edge[axis], step=stride[axis], shape=(count[axis],))
        first = b(reshape, first, shape=(count[axis], *(1,) * (len(k) - 1 - axis)))
        position = b(add, first, b(mod, rest, number(k[axis])))
        rest = b(floordiv, rest, number(k[axis]))
        index = b(add, b(mul, position, number(stretch)), index)
        stretch *= size[axis]
    return index


def _spread(parts: Sequence[Array], dy: Array, attrs: Mapping[str, Any]) -> Array:
    """Adds ``parts[i]`` to the windows' elements at position i: the transpose of ``_windows``."""
    k, stride, pad, size = (int_tuple(attrs, name) for name in ("k", "stride", "pad", "size"))
    wide = (n + 2 * p + m for n, p, m in zip(size, pad, lacking(attrs)))
    dx = np.zeros((*dy.shape[:2], *wide), dy.dtype)
    for part, (_, where) in zip(parts, taps(k, stride, (1,) * len(k), dy.shape[2:])):
        dx[spatial(where)] += part
    return np.ascontiguousarray(dx[spatial(inside(size, pad))])


class AvgPool(Op):
    """avgpool(x): the mean of each window of x ``[B, C, *space]``.

    Attributes, one number for each spatial axis: ``k``, ``stride``, ``pad`` (with zeros, at most half the window; they
    count in the mean, as in PyTorch by default).
    """

    name = "avgpool"
    kernel_kind = "windows"
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer("avgpool", types[0], attrs),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        assert dys[0] is not None
        return (b(avgpool_grad, dys[0], **_geometry(node), size=node.inputs[0].type.shape[2:]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        windows = _windows(xs[0], attrs, 0)
        total = windows[0].copy()
        with np.errstate(all="ignore"):
            for window in windows[1:]:
                total += window
        total /= len(windows)
        return (total,)

    def cost(self, node: Node) -> Cost:
        [y] = node.types
        return Cost(prod(y.ints) * prod(int_tuple(node.attrs, "k")), node.input_types[0].bytes + y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, 1)


class AvgPoolGrad(Op):
    """avgpool_grad(dy): shares each dy evenly among the elements of its window.

    Attributes as for ``avgpool``, and ``size``, the spatial size of the result.
    """

    name = "avgpool_grad"
    kernel_kind = "windows"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer_back("avgpool", types[0], attrs),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        assert dys[0] is not None
        return (b(avgpool, dys[0], **_geometry(node)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [dy] = xs
        places = prod(attrs["k"])
        with np.errstate(all="ignore"):
            return (_spread([dy / places] * places, dy, attrs),)

    def cost(self, node: Node) -> Cost:
        [dy] = node.input_types
        return Cost(prod(dy.ints) * prod(int_tuple(node.attrs, "k")), dy.bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, 1)


maxpool = register(MaxPool())
maxpool_grad = register(MaxPoolGrad())
avgpool = register(AvgPool())
avgpool_grad = register(AvgPoolGrad())
