"""Windows as tensors: unfold copies each window of ``[B, C, *space]`` out, fold adds windows up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Ints, Shape, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, exact_div, product
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import written
from dslc.compiler.ops.shape.slicing import pad as pad_ends
from dslc.compiler.ops.shape.slicing import slice_
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.windows import per_axis, spatial, spatial_axes, taps, window_count

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _geometry(attrs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: int_tuple(attrs, name) for name in ("k", "stride", "dilation")}


def _counts(op: str, space: Sequence[Size], k: Ints, stride: Ints, dilation: Ints, pad: Ints) -> tuple[Size, ...]:
    """The number of windows along each spatial axis; raises Mismatch."""
    sizes = zip(space, k, stride, pad, dilation, range(2, 2 + len(k)))
    return tuple(window_count(op, *each) for each in sizes)


def _at(tap: tuple[int, ...]) -> Any:
    """The index of an element of every window of every channel."""
    return (slice(None), slice(None), *tap)


def _rows(axis: int | None) -> tuple[int | None, ...] | None:
    return (axis,) if axis is None or axis < 2 else None


class Unfold(Op):
    """unfold(x): every window of x ``[B, C, *space]`` as ``[B, C, *k, *count]``.

    Attributes, one number for each spatial axis: ``k``, ``stride`` and ``dilation``. There is no padding.
    """

    name = "unfold"
    moves = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x], form = types, _geometry(attrs)
        assert spatial_axes("unfold", x) == len(form["k"])
        count = _counts("unfold", x.shape[2:], **form, pad=(0,) * len(form["k"]))
        return (TensorType(x.dtype, (*x.shape[:2], *form["k"], *count)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(fold, only(dys), **_geometry(node.attrs), size=node.inputs[0].type.shape[2:]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x], form = xs, _geometry(attrs)
        count = [(n - d * (m - 1) - 1) // s + 1 for n, m, s, d in zip(x.shape[2:], *form.values())]
        y = np.empty((*x.shape[:2], *form["k"], *count), x.dtype)
        for tap, where in taps(form["k"], form["stride"], form["dilation"], count):
            y[_at(tap)] = x[spatial(where)]
        return [y]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes[0])


class Fold(Op):
    """fold(y): ``[B, C, *size]``, to which every window of y ``[B, C, *k, *count]`` is added at its place.

    Attributes as for ``unfold``, and ``size``, the spatial size of the result. Windows are added in the order of their
    places in the tensor, so the bits are the same in every run.
    """

    name = "fold"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [y], form, size = types, _geometry(attrs), shape_attr(attrs, "size")
        axes = len(form["k"])
        count = _counts("fold", size, **form, pad=(0,) * axes)
        if y.shape[2:] != (*form["k"], *count):
            raise Mismatch(f"`fold` of {y} to {written(size)}", f"windows {[*form['k'], *count]}", "E0302")
        if not y.dtype.is_float:
            raise Mismatch(f"`fold` needs a float tensor, not {y.dtype}", 'convert it: `cast(x, "float")`', "E0204")
        return (TensorType(y.dtype, (*y.shape[:2], *size)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(unfold, only(dys), **_geometry(node.attrs)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [y], form = xs, _geometry(attrs)
        axes = len(form["k"])
        x = np.zeros((*y.shape[:2], *int_tuple(attrs, "size")), y.dtype)
        with np.errstate(all="ignore"):
            for tap, where in taps(form["k"], form["stride"], form["dilation"], y.shape[2 + axes :]):
                x[spatial(where)] += y[_at(tap)]
        return [x]

    def cost(self, node: Node) -> Cost:
        [y], [x] = node.input_types, node.types
        return Cost(prod(y.ints), y.bytes + x.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes[0])


unfold = register(Unfold())
fold = register(Fold())


def _arguments(axes: int, k: Ints, stride: Ints, pad: Ints, dilation: Ints) -> tuple[dict[str, Ints], Ints]:
    """The attributes of both ops, and the padding."""
    form = {"k": per_axis("k", k, axes, 1), "stride": per_axis("stride", stride, axes, 1)}
    form["dilation"] = per_axis("dilation", dilation, axes, 1)
    return form, per_axis("pad", pad, axes, 0)


class UnfoldFunction(Function):
    """unfold(x, k, stride=1, pad=0, dilation=1): the windows of ``[B, C, *space]`` as columns, as in PyTorch.

    The result is ``[B, C * prod(k), L]``: column l holds the elements of window l, of which there are L in row-major
    order. ``k``, ``stride``, ``pad`` (with zeros) and ``dilation`` are one number for all spatial axes or one each.

    given: x: [B, 6, 28, 28]
    >>> columns = unfold(x, 4, stride=4)
    """

    name = "unfold"

    def build(
        self, call: Call, x: Value, k: Ints, *, stride: Ints = (1,), pad: Ints = (0,), dilation: Ints = (1,)
    ) -> Value:
        form, edges = _arguments(spatial_axes(self.name, x.type), k, stride, pad, dilation)
        count = _counts(self.name, x.type.shape[2:], **form, pad=edges)
        if any(edges):
            ends, none = (0, 0, *edges), (0,) * x.type.rank
            x = call.emit(pad_ends, x, low=ends, high=ends, interior=none, value=0.0)
        found = call.emit(unfold, x, **form)
        batch, channels = x.type.shape[:2]
        return call.emit(reshape, found, shape=(batch, channels * prod(form["k"]), product(count)))


class FoldFunction(Function):
    """fold(x, size, k, stride=1, pad=0, dilation=1): ``[B, C, *size]``, the sum of windows given as columns.

    ``x`` is ``[B, C * prod(k), L]``, as ``unfold`` of a tensor of these spatial sizes gives it. Elements that several
    windows cover are the sums of all of them. There are as many spatial axes as ``size`` or ``k`` has numbers.

    given: x: [B, 6, 28, 28]
    >>> y = fold(unfold(x, 3, pad=1), [28, 28], 3, pad=1)
    """

    name = "fold"

    def build(
        self, call: Call, x: Value, size: Shape, k: Ints, *, stride: Ints = (1,), pad: Ints = (0,),
        dilation: Ints = (1,),
    ) -> Value:  # fmt: skip
        axes = max(map(len, (size, k, stride, pad, dilation)))
        form, edges = _arguments(axes, k, stride, pad, dilation)
        if len(size) != axes:
            if len(size) != 1:
                raise Mismatch(f"`size` has {len(size)} numbers for {axes} axes", f"give one, or {axes}", "E0209")
            size *= axes
        count = _counts(self.name, size, **form, pad=edges)
        places = prod(form["k"])
        channels = exact_div(x.type.shape[1], places) if x.type.rank == 3 else None
        if channels is None or x.type.shape[2] != product(count):
            why = f"`fold` of {x.type} to {written(size)}"
            raise Mismatch(why, f"columns [batch, channels * {places}, {product(count)}]", "E0302")
        batch = x.type.shape[0]
        windows = call.emit(reshape, x, shape=(batch, channels, *form["k"], *count))
        wide = tuple(n + 2 * p for n, p in zip(size, edges))
        y = call.emit(fold, windows, **form, size=wide)
        if not any(edges):
            return y
        starts, stops = (0, 0, *edges), (batch, channels, *(p + n for p, n in zip(edges, size)))
        return call.emit(slice_, y, starts=starts, stops=stops, steps=(1,) * y.type.rank)


function(UnfoldFunction())
function(FoldFunction())
