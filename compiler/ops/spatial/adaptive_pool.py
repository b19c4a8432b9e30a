"""Pools to a given size, and global pools: adaptive_avgpool, adaptive_maxpool, global_avgpool, global_maxpool.

Window i of m over n elements runs from ``floor(i*n/m)`` to ``ceil((i + 1)*n/m)``, as in PyTorch; windows may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as every
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.reduce import Reduction, max_, mean
from dslc.compiler.ops.spatial.placed_pool import PlacedMaxPool
from dslc.compiler.ops.spatial.pool import avgpool, maxpool
from dslc.compiler.ops.spatial.windows import per_axis, spatial_axes

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _infer(op: str, x: TensorType, attrs: Attrs) -> TensorType:
    """x with the spatial sizes of the attribute ``size``; raises Mismatch."""
    axes, size = spatial_axes(op, x), ints_attr(attrs, "size")
    assert len(size) == axes
    if not x.dtype.is_float:
        raise Mismatch(f"`{op}` needs a float tensor, not {x.dtype}", 'convert it: `cast(x, "float")`', "E0204")
    for n in (*x.shape[2:], *size):
        if bounds(n)[0] < 1:
            raise Mismatch(f"`{op}` of {x} to {list(size)}", "at least one element on each spatial axis", "E0308")
    return TensorType(x.dtype, (*x.shape[:2], *size))


def windows_of(before: int, after: int) -> list[slice]:
    """The elements of each window along an axis."""
    return [slice(i * before // after, -(-(i + 1) * before // after)) for i in range(after)]


def _on(axis: int, where: slice | int) -> Any:
    return (slice(None),) * axis + (where,)


class AdaptiveAvgPool(Op):
    """adaptive_avgpool(x): the means of ``size`` windows that cover x ``[B, C, *space]``, whatever its size.

    Attribute ``size``, the spatial sizes of the result, ints.
    """

    name = "adaptive_avgpool"
    kernel_kind = "windows"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer("adaptive_avgpool", types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(adaptive_avgpool_grad, only(dys), size=node.inputs[0].type.ints[2:]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        with np.errstate(all="ignore"):
            for axis, after in enumerate(int_tuple(attrs, "size"), 2):  # the mean of a box is a mean of means
                if x.shape[axis] == after:
                    continue
                y = np.empty((*x.shape[:axis], after, *x.shape[axis + 1 :]), x.dtype)
                for i, window in enumerate(windows_of(x.shape[axis], after)):
                    y[_on(axis, i)] = np.mean(x[_on(axis, window)], axis=axis)
                x = y
        return [x]

    def cost(self, node: Node) -> Cost:
        [x], [y] = node.input_types, node.types
        return Cost(prod(x.ints) + prod(y.ints), x.bytes + y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


class AdaptiveAvgPoolGrad(Op):
    """adaptive_avgpool_grad(dy): shares each ``dy`` evenly among the elements of its window.

    Attribute ``size``, the spatial sizes of the result, ints.
    """

    name = "adaptive_avgpool_grad"
    kernel_kind = "windows"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer("adaptive_avgpool", types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(adaptive_avgpool, only(dys), size=node.inputs[0].type.ints[2:]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [dy] = xs
        with np.errstate(all="ignore"):
            for axis, before in enumerate(int_tuple(attrs, "size"), 2):
                if dy.shape[axis] == before:
                    continue
                dx = np.zeros((*dy.shape[:axis], before, *dy.shape[axis + 1 :]), dy.dtype)
                for i, window in enumerate(windows_of(before, dy.shape[axis])):
                    dx[_on(axis, window)] += dy[_on(axis, slice(i, i + 1))] / (window.stop - window.start)
                dy = dx
        return [dy]

    def cost(self, node: Node) -> Cost:
        [dy], [dx] = node.input_types, node.types
        return Cost(prod(dx.ints) + prod(dy.ints), dx.bytes + dy.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


class AdaptiveMaxPool(PlacedMaxPool):
    """adaptive_maxpool(x): the greatest element of each of ``size`` windows over x ``[B, C, *space]``, and its index.

    The second output is the row-major index in the image, as i32. The first of equal elements wins; nan counts
    as greatest. Attribute ``size``, the spatial sizes of the result, ints.
    """

    name = "adaptive_maxpool"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        y = _infer("adaptive_maxpool", types[0], attrs)
        return y, TensorType(DType.I32, y.shape)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        size = int_tuple(attrs, "size")
        y = np.empty((*x.shape[:2], *size), x.dtype)
        place = np.empty(y.shape, np.int32)
        number = np.arange(prod(x.shape[2:])).reshape(x.shape[2:])
        cuts = [list(enumerate(windows_of(n, m))) for n, m in zip(x.shape[2:], size)]
        for cell in every(*cuts):
            at: Any = (..., *(i for i, _ in cell))
            box: Any = (..., *(window for _, window in cell))
            inside = number[box].reshape(-1)
            lines = x[box].reshape(*x.shape[:2], inside.size)
            best = np.argmax(lines, axis=2)
            y[at] = np.take_along_axis(lines, best[..., None], 2)[..., 0]
            place[at] = inside[best]
        return [y, place]

    def cost(self, node: Node) -> Cost:
        [x] = node.input_types
        return Cost(prod(x.ints) + prod(node.types[0].ints), x.bytes + sum(t.bytes for t in node.types))


adaptive_avgpool = register(AdaptiveAvgPool())
adaptive_avgpool_grad = register(AdaptiveAvgPoolGrad())
adaptive_maxpool = register(AdaptiveMaxPool())


def _even(x: Value, size: tuple[int, ...]) -> dict[str, tuple[int, ...]] | None:
    """The attributes of an equivalent plain pool; None if windows overlap or sizes are unknown."""
    k = []
    for n, m in zip(x.type.shape[2:], size):
        if not isinstance(n, int) or not n or n % m:
            return None
        k.append(n // m)
    return {"k": tuple(k), "stride": tuple(k), "pad": (0,) * len(k)}


class AdaptiveAvgPoolFunction(Function):
    """adaptive_avgpool(x, size): ``[B, C, *space]`` averaged to spatial sizes ``size``, an int for all or one each.

    Window i of m over n elements runs from floor(i*n/m) to ceil((i + 1)*n/m), as in PyTorch.

    given: x: [B, 6, 15, 15]
    >>> y = adaptive_avgpool(x, 7)
    """

    name = "adaptive_avgpool"

    def build(self, call: Call, x: Value, size: Ints) -> Value:
        wanted = per_axis("size", size, spatial_axes(self.name, x.type), 1)
        even = _even(x, wanted)
        return call.emit(adaptive_avgpool, x, size=wanted) if even is None else call.emit(avgpool, x, **even)


class AdaptiveMaxPoolFunction(Function):
    """adaptive_maxpool(x, size): the greatest element of each of ``size`` windows that cover ``[B, C, *space]``.

    Arguments and windows as for ``adaptive_avgpool``. If several elements equal the maximum, the gradient goes to the
    first.

    given: x: [B, 6, 15, 15]
    >>> y = adaptive_maxpool(x, [7, 5])
    """

    name = "adaptive_maxpool"

    def build(self, call: Call, x: Value, size: Ints) -> Value:
        wanted = per_axis("size", size, spatial_axes(self.name, x.type), 1)
        even = _even(x, wanted)
        if even is None:
            return call.emit_all(adaptive_maxpool, x, size=wanted)[0]
        return call.emit_all(maxpool, x, **even)[0]


def _over_space(call: Call, op: Reduction, name: str, x: Value, keep: bool) -> Value:
    return call.emit(op, x, over=tuple(range(2, 2 + spatial_axes(name, x.type))), keep=keep)


class GlobalAvgPool(Function):
    """global_avgpool(x, keep=false): the mean over all spatial axes of ``[B, C, *space]``: ``[B, C]``.

    ``keep`` leaves these axes with size 1.

    given: x: [B, 6, 7, 7]
    >>> y = x |> global_avgpool |> linear(10)
    """

    name = "global_avgpool"

    def build(self, call: Call, x: Value, keep: bool = False) -> Value:
        return _over_space(call, mean, self.name, x, keep)


class GlobalMaxPool(Function):
    """global_maxpool(x, keep=false): the greatest element over all spatial axes of ``[B, C, *space]``: ``[B, C]``.

    ``keep`` leaves these axes with size 1. Equal greatest elements share the gradient evenly.

    given: x: [B, 6, 7, 7]
    >>> y = global_maxpool(x)
    """

    name = "global_maxpool"

    def build(self, call: Call, x: Value, keep: bool = False) -> Value:
        return _over_space(call, max_, self.name, x, keep)


for _function in (AdaptiveAvgPoolFunction, AdaptiveMaxPoolFunction, GlobalAvgPool, GlobalMaxPool):
    function(_function())
