"""border: elements of the tensor itself before and after its axes, mirrored, repeated or from the other end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: mode -> numpy's.
_MODES: Final[dict[str, Literal["reflect", "edge", "wrap"]]] = {
    "reflect": "reflect", "replicate": "edge", "circular": "wrap",
}  # fmt: skip


class Border(Op):
    """border(x): axis ``i`` gets ``low[i]`` elements of the tensor before and ``high[i]`` after.

    Attributes ``low`` and ``high`` (ints from 0, one for each axis) and ``mode``: ``reflect`` at the outermost element,
    ``replicate`` it, or ``circular``. An axis has at least as many elements as it gets at an end, with ``reflect`` one
    more, with ``replicate`` one.
    """

    name = "border"
    by_axis = ("low", "high")
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x], low, high = types, ints_attr(attrs, "low"), ints_attr(attrs, "high")
        assert len(low) == len(high) == x.rank and min((*low, *high), default=0) >= 0
        assert str_attr(attrs, "mode") in _MODES
        return (TensorType(x.dtype, tuple(n + a + z for n, a, z in zip(x.shape, low, high))),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(border_grad, only(dys), **{name: node.attrs[name] for name in ("low", "high", "mode")}),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        widths = list(zip(int_tuple(attrs, "low"), int_tuple(attrs, "high")))
        if not xs[0].size:
            return [np.zeros([n + a + z for n, (a, z) in zip(xs[0].shape, widths)], xs[0].dtype)]
        padded: Array = np.pad(xs[0], widths, mode=_MODES[str(attrs["mode"])])
        return [padded]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 2 * node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes)


class BorderGrad(Op):
    """border_grad(dy): each element gets the sum of ``dy`` where ``border`` puts it. Its attributes are those of
    ``border``; the terms of the first axes are added last."""

    name = "border_grad"
    by_axis = ("low", "high")
    needs = (frozenset(),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [dy], low, high = types, ints_attr(attrs, "low"), ints_attr(attrs, "high")
        return (TensorType(dy.dtype, tuple(n - a - z for n, a, z in zip(dy.shape, low, high))),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(border, only(dys), **{name: node.attrs[name] for name in ("low", "high", "mode")}),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [dy], low, high = xs, int_tuple(attrs, "low"), int_tuple(attrs, "high")
        shape = [n - a - z for n, a, z in zip(dy.shape, low, high)]
        padded = [axis for axis, ends in enumerate(zip(low, high)) if any(ends)]
        if not padded or not dy.size:
            return [dy.reshape(shape).copy()]
        maps = [places(shape[axis], low[axis], high[axis], str(attrs["mode"])) for axis in padded]
        dx = np.zeros(shape, np.result_type(dy.dtype, np.float32))
        for terms in product(*maps):
            index: list[Any] = [slice(None)] * dy.ndim
            target: list[Any] = [slice(None)] * dy.ndim
            for axis, (first, last, scale, offset) in zip(padded, terms):
                at = np.arange(first, last)
                index[axis], target[axis] = scale * at + offset, slice(first, last)
            part = dy
            for axis in padded:
                part = np.take(part, index[axis], axis)
            dx[tuple(target)] += part
        return [dx.astype(dy.dtype)]

    def cost(self, node: Node) -> Cost:
        return Cost(node.types[0].bytes // node.types[0].dtype.itemsize, 2 * node.input_types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes)


def places(size: int, low: int, high: int, mode: str) -> list[tuple[int, int, int, int]]:
    """Where elements of an axis stand in the result: for each element ``j`` from ``first`` to before ``last`` at
    ``scale * j + offset``. The elements' own places come first; empty ranges are left out."""
    found = [(0, size, 1, low)]
    match mode:
        case "reflect":
            found += [(1, low + 1, -1, low), (size - 1 - high, size - 1, -1, low + 2 * (size - 1))]
        case "circular":
            found += [(size - low, size, 1, low - size), (0, high, 1, low + size)]
        case _:
            found += [(0, 1, 1, i) for i in range(low)]
            found += [(size - 1, size, 1, low + 1 + i) for i in range(high)]
    return [each for each in found if each[0] < each[1]]


def _rows(node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    [axis] = axes
    padded = axis is not None and bool(ints_attr(node.attrs, "low")[axis] or ints_attr(node.attrs, "high")[axis])
    return None if padded else (axis,)


border = register(Border())
border_grad = register(BorderGrad())
