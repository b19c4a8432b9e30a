"""The ops interpolate, which resamples the spatial axes of images, and interpolate_grad, its gradient.

Both read constant weights times pixels: what makes a pixel follows from the sizes (``resampling.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attr, Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import flag_attr, int_tuple, ints_attr, shape_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only, require_kind
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.spatial.resampling import resamplings
from dslc.compiler.ops.spatial.windows import spatial_axes

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_MODES: Final = ("nearest", "nearest-exact", "linear", "cubic")


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    """x with the spatial sizes of the attribute ``size``; raises Mismatch."""
    axes, size = spatial_axes("interpolate", x), shape_attr(attrs, "size")
    mode = str_attr(attrs, "mode")
    assert mode in _MODES and len(size) == axes
    assert not mode.startswith("nearest") or not (flag_attr(attrs, "corners") or flag_attr(attrs, "widened"))
    if "ratio" in attrs:
        ratio = ints_attr(attrs, "ratio")
        assert len(ratio) == 2 * axes and min(ratio) > 0 and not flag_attr(attrs, "corners")
    require_kind("interpolate", x.dtype, "float")
    for n in (*x.shape[2:], *size):
        if bounds(n)[0] < 1:
            raise Mismatch(f"`interpolate` of {x} to a size of {n}", "at least one pixel on each axis", "E0308")
    return TensorType(x.dtype, (*x.shape[:2], *size))


def _back(node: Node) -> dict[str, Attr]:
    """The attributes of the op that goes the other way."""
    return {**node.attrs, "size": node.inputs[0].type.shape[2:]}


def _along(weight: Array, axis: int, rank: int) -> Array:
    return weight.reshape(-1, *(1,) * (rank - 1 - axis))


class Interpolate(Op):
    """interpolate(x): x ``[B, C, *space]`` with the spatial sizes of the attribute ``size``.

    Attribute ``mode``: "nearest" takes the pixel ``i * n // m`` for pixel i of m, "nearest-exact" the one at its
    centre; "linear" mixes the two neighbours on each axis of ``(i + 0.5)*n/m - 0.5``, clamped at the border; "cubic"
    four neighbours. ``corners``: positions are ``i*(n - 1)/(m - 1)``. ``widened``: the filter of "linear" or "cubic" is
    as wide as a result pixel, and its weights are not yet divided by their sum. ``ratio``: ints p and q of each axis,
    where ``n/m`` above is ``p/q`` instead.
    """

    name = "interpolate"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer(types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(interpolate_grad, only(dys), **_back(node)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x = xs[0]
        with np.errstate(all="ignore"):
            for axis, r in enumerate(resamplings(attrs, x.shape[2:], int_tuple(attrs, "size")), 2):
                if r.unchanged:
                    continue
                parts = []
                for index, weight in r.taps(x.dtype):
                    part = np.take(x, index, axis=axis)
                    parts.append(part if weight is None else part * _along(weight, axis, x.ndim))
                x = sum(parts[1:], parts[0])
        return [x]

    def cost(self, node: Node) -> Cost:
        [x], [y] = node.input_types, node.types
        taps = prod(r.steps for r in resamplings(node.attrs, x.ints[2:], y.ints[2:]))
        return Cost(2 * (taps - 1) * prod(y.ints), x.bytes + y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


class InterpolateGrad(Op):
    """interpolate_grad(dy): adds each ``dy`` to its source pixels, times their weights.

    Attributes: ``size``, the spatial sizes of the result, and the others as for ``interpolate``. Added in ascending
    order.
    """

    name = "interpolate_grad"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return (_infer(types[0], attrs),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(interpolate, only(dys), **_back(node)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        dy = xs[0]
        with np.errstate(all="ignore"):
            for axis, r in enumerate(resamplings(attrs, int_tuple(attrs, "size"), dy.shape[2:]), 2):
                if r.unchanged:
                    continue
                dx = np.zeros((*dy.shape[:axis], r.n, *dy.shape[axis + 1 :]), dy.dtype)
                for index, weight in r.taps(dy.dtype):
                    part = dy if weight is None else dy * _along(weight, axis, dy.ndim)
                    _add_runs(dx, part, index, axis)
                dy = dx
        return [dy]

    def cost(self, node: Node) -> Cost:
        [dy], [dx] = node.input_types, node.types
        taps = prod(r.steps for r in resamplings(node.attrs, dx.ints[2:], dy.ints[2:]))
        return Cost(2 * taps * prod(dy.ints), dy.bytes + dx.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] in (None, 0, 1) else None


def _add_runs(dx: Array, part: Array, index: Array, axis: int) -> None:
    """Adds ``part`` to ``dx`` at ``index`` along an axis; indices ascend, so equal ones are neighbours."""
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    where = (slice(None),) * axis + (index[first],)
    dx[where] += np.add.reduceat(part, first, axis=axis)


interpolate = register(Interpolate())
interpolate_grad = register(InterpolateGrad())
