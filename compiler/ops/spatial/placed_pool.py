"""Max pools that give the index of each maximum in the image: their gradient, and the one with dilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.elementwise.arithmetic import Gradients
from dslc.compiler.ops.index.indexing import scatter_add
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.windows import check_pad, inside, spatial, spatial_axes, taps, window_count

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_GEOMETRY: Final = ("k", "stride", "pad", "dilation", "more")


class PlacedMaxPool(Op):
    """A max pool whose second output is the row-major index in the image, as i32. Gradients are added there."""

    needs = (frozenset({"y1"}),)
    kernel_kind = "windows"

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        if dys[0] is None:
            raise NoGradient(f"no gradient flows through the indices of `{self.name}`")
        shape, after = node.inputs[0].type.ints, node.types[0].ints
        lines = (*after[:2], prod(after[2:]))
        dy, place = b(reshape, dys[0], shape=lines), b(reshape, node.outputs[1], shape=lines)
        return (b(reshape, b(scatter_add, dy, place, axis=2, count=prod(shape[2:])), shape=shape),)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0], axes[0]) if axes[0] in (None, 0, 1) else None


class MaxPoolPlaces(PlacedMaxPool):
    """maxpool_places(x): the largest element of each window of x ``[B, C, *space]``, and its index in the image.

    Attributes, one number for each spatial axis: ``k``, ``stride``, ``pad``, ``dilation``, the distance of neighbours
    in a window, and ``more``, the elements that a last, partial window lacks at the end. The second output is the
    row-major index in the image, as i32. The first of equal elements wins, and nan counts as largest. A window never
    selects padding.
    """

    name = "maxpool_places"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        axes = spatial_axes("maxpool", x)
        if not x.dtype.is_float:
            raise Mismatch(f"`maxpool` needs a float tensor, not {x.dtype}", 'convert it: `cast(x, "float")`', "E0204")
        k, stride, pad, dilation, more = (int_tuple(attrs, name) for name in _GEOMETRY)
        assert len(k) == len(stride) == len(pad) == len(dilation) == len(more) == axes
        check_pad("maxpool", k, pad, dilation)
        for size, edge, gap in zip(x.shape[2:], pad, dilation):
            if edge and gap > bounds(size)[0]:
                why = f"a window of `maxpool` with dilation {gap} and `pad` may miss an axis of {size}"
                raise Mismatch(why, "a smaller dilation, or `pad=0`", "E0209")
        space = tuple(
            window_count("maxpool", x.shape[2 + i] + more[i], k[i], stride[i], pad[i], dilation[i], 2 + i)
            for i in range(axes)
        )
        y = TensorType(x.dtype, (*x.shape[:2], *space))
        return y, TensorType(DType.I32, y.shape)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        k, stride, pad, dilation, more = (int_tuple(attrs, name) for name in _GEOMETRY)
        size = x.shape[2:]
        wide = tuple(n + 2 * p + m for n, p, m in zip(size, pad, more))
        count = [(n - d * (m - 1) - 1) // s + 1 for n, m, s, d in zip(wide, k, stride, dilation)]
        values, places = np.full((*x.shape[:2], *wide), -np.inf, x.dtype), np.full(wide, -1, np.int32)
        values[spatial(inside(size, pad))] = x
        places[inside(size, pad)] = np.arange(prod(size)).reshape(size)
        y = np.full((*x.shape[:2], *count), -np.inf, x.dtype)
        place = np.full(y.shape, -1, np.int32)
        for _, where in taps(k, stride, dilation, count):
            value, at = values[spatial(where)], np.broadcast_to(places[where], y.shape)
            better = (value > y) | (np.isnan(value) & ~np.isnan(y)) | (place < 0)
            better &= at >= 0
            np.copyto(y, value, where=better)
            np.copyto(place, at, where=better)
        return [y, place]

    def cost(self, node: Node) -> Cost:
        y, place = node.types
        return Cost(prod(y.ints) * prod(int_tuple(node.attrs, "k")), node.input_types[0].bytes + y.bytes + place.bytes)


maxpool_places = register(MaxPoolPlaces())
