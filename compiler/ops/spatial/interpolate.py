"""interpolate: resizes images by nearest neighbour or linearly; with its gradient.

Coordinates follow PyTorch with ``align_corners=false``: pixels are areas, pixel i of n has its centre at (i + 0.5)/n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.function import Call, Function, Ints, Shape, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, shape_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only, require_kind
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.spatial.windows import per_axis, spatial_axes

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    """x with the spatial sizes of the attribute ``size``; raises Mismatch."""
    axes, size = spatial_axes("interpolate", x), shape_attr(attrs, "size")
    mode = str_attr(attrs, "mode")
    assert mode in ("nearest", "linear") and len(size) == axes
    require_kind("interpolate", x.dtype, "float")
    for n in (*x.shape[2:], *size):
        if bounds(n)[0] < 1:
            raise Mismatch(f"`interpolate` of {x} to a size of {n}", "at least one pixel on each axis", "E0308")
    return TensorType(x.dtype, (*x.shape[:2], *size))


def _sources(before: int, after: int, mode: str, inner: Any) -> Iterator[tuple[Array, Any]]:
    """For each neighbour used: its index for every new pixel, and its weight (None: 1)."""
    new = np.arange(after)
    if mode == "nearest":
        yield new * before // after, None
        return
    # (new + 0.5) * before / after - 0.5 as a fraction over 2 * after, so that the split is exact
    numerator = np.maximum((2 * new + 1) * before - after, 0)
    low = numerator // (2 * after)
    weight = ((numerator - low * 2 * after) / (2 * after)).astype(inner)
    yield low, 1 - weight
    yield np.minimum(low + 1, before - 1), weight


def _along(weight: Array, axis: int, rank: int) -> Array:
    return weight.reshape(-1, *(1,) * (rank - 1 - axis))


class Interpolate(Op):
    """interpolate(x): x ``[B, C, *space]`` with the spatial sizes of the attribute ``size``.

    Attribute ``mode``: "nearest" takes the pixel ``i * n // m`` for pixel i of m; "linear" mixes the two neighbours on
    each axis of ``(i + 0.5)*n/m - 0.5``, clamped at the border.
    """

    name = "interpolate"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer(types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        size = node.inputs[0].type.shape[2:]
        return (b(interpolate_grad, only(dys), size=size, mode=node.attrs["mode"]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, mode = xs[0], attrs["mode"]
        with np.errstate(all="ignore"):
            for axis, after in enumerate(int_tuple(attrs, "size"), 2):
                if after == x.shape[axis]:
                    continue
                parts = []
                for index, weight in _sources(x.shape[axis], after, mode, x.dtype):
                    part = np.take(x, index, axis=axis)
                    parts.append(part if weight is None else part * _along(weight, axis, x.ndim))
                x = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return [x]

    def cost(self, node: Node) -> Cost:
        [x], [y] = node.input_types, node.types
        taps = 1 if node.attrs["mode"] == "nearest" else 2 ** (x.rank - 2)
        return Cost(2 * (taps - 1) * (y.bytes // y.dtype.itemsize), x.bytes + y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


class InterpolateGrad(Op):
    """interpolate_grad(dy): adds each ``dy`` to its source pixels, times their weights.

    Attributes: ``size``, the spatial sizes of the result, and ``mode`` as for ``interpolate``. Added in ascending
    order.
    """

    name = "interpolate_grad"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer(types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        size = node.inputs[0].type.shape[2:]
        return (b(interpolate, only(dys), size=size, mode=node.attrs["mode"]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        dy, mode = xs[0], attrs["mode"]
        with np.errstate(all="ignore"):
            for axis, before in enumerate(int_tuple(attrs, "size"), 2):
                if before == dy.shape[axis]:
                    continue
                dx = np.zeros((*dy.shape[:axis], before, *dy.shape[axis + 1 :]), dy.dtype)
                for index, weight in _sources(before, dy.shape[axis], mode, dy.dtype):
                    part = dy if weight is None else dy * _along(weight, axis, dy.ndim)
                    _add_runs(dx, part, index, axis)
                dy = dx
        return [dy]

    def cost(self, node: Node) -> Cost:
        [dy], [dx] = node.input_types, node.types
        taps = 1 if node.attrs["mode"] == "nearest" else 2 ** (dy.rank - 2)
        return Cost(2 * taps * (dy.bytes // dy.dtype.itemsize), dy.bytes + dx.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


def _add_runs(dx: Array, part: Array, index: Array, axis: int) -> None:
    """Adds ``part`` to ``dx`` at ``index`` along an axis; indices ascend, so equal ones are neighbours."""
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    where = (slice(None),) * axis + (index[first],)
    dx[where] += np.add.reduceat(part, first, axis=axis)


interpolate = register(Interpolate())
interpolate_grad = register(InterpolateGrad())

#: mode of the language -> (mode of the op, number of spatial axes; None: any)
MODES: Final[dict[str, tuple[str, int | None]]] = {
    "nearest": ("nearest", None),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
}


class InterpolateFunction(Function):
    """interpolate(x, size=none, scale=none, mode="nearest"): ``[B, C, *space]`` with other spatial sizes.

    Give ``size``, the new sizes, or ``scale``, the factors: one for all axes or one each. ``mode`` is "nearest",
    "bilinear", or "linear" and "trilinear" for one and three spatial axes, as in PyTorch with ``align_corners=false``;
    shrinking does not smooth.

    given: x: [B, 3, 14, 14]
    >>> y = interpolate(x, scale=2, mode="bilinear")
    """

    name = "interpolate"

    def build(
        self,
        call: Call,
        x: Value,
        size: Shape | None = None,
        scale: Ints | None = None,
        mode: str = "nearest",
    ) -> Value:
        axes = spatial_axes("interpolate", x.type)
        if (size is None) == (scale is None):
            raise Mismatch("`interpolate` needs `size` or `scale`", "`scale=2`, or `size=[28, 28]`", "E0201")
        if mode not in MODES:
            raise Mismatch(f'`mode` is "{mode}"', "one of " + ", ".join(f'"{m}"' for m in MODES), "E0209")
        inner, wanted = MODES[mode]
        if wanted not in (None, axes):
            fitting = next((m for m, (_, n) in MODES.items() if n == axes), "nearest")
            raise Mismatch(f'"{mode}" runs over {wanted} axes, {x.type} has {axes}', f'mode="{fitting}"', "E0209")
        new: tuple[Size, ...]
        if size is not None:
            if len(size) not in (1, axes):
                why = f"`size` has {len(size)} numbers for {axes} spatial axes"
                raise Mismatch(why, f"give one, or {axes}", "E0209")
            new = size if len(size) == axes else size * axes
        else:
            assert scale is not None
            new = tuple(n * by for n, by in zip(x.type.shape[2:], per_axis("scale", scale, axes, 1)))
        return call.emit(interpolate, x, size=new, mode=inner)


function(InterpolateFunction())
