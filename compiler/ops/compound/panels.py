"""``panels`` and ``of_panels``: the operand of a product in the layout that its kernel reads. A pass makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: The attributes of ``panels``, which ``of_panels`` has, too.
LAYOUT = ("batch", "lanes", "inner", "start", "panel")


class Panels(Op):
    """panels(x): elements of ``x`` as panels ``[*batch, ceil(lanes / panel), *inner, panel]``, in one axis.

    Attributes: ``batch`` and ``inner``, (size, stride) of each axis; ``lanes``, one such pair; ``start``, the first
    element; ``panel``, the lanes of a panel. The last panel ends with zeros if it is not full.
    """

    name = "panels"
    kernel_kind = "copies"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        return (TensorType(x.dtype, (_elements(attrs),)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("operands are packed after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        places, present = _places(attrs)
        flat = np.ascontiguousarray(xs[0]).reshape(-1)
        return [np.where(present, flat[np.where(present, places, 0)], xs[0].dtype.type(0)).reshape(-1)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class OfPanels(Op):
    """of_panels(x, panels): a product of ``x`` and an operand that is given as ``panels``.

    Attributes: ``product``, the name of an op of two operands, and ``each``, its attributes as ((name, value), ...);
    ``operand``, the number of the one that is given as panels, and ``shape``, its shape; those of ``panels``.
    """

    name = "of_panels"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, panels = types
        if panels.shape != (_elements(attrs),):
            raise Mismatch(f"{panels} as panels", f"{_elements(attrs)} elements")
        operands = [TensorType(panels.dtype, int_tuple(attrs, "shape"))]
        operands.insert(1 - int_attr(attrs, "operand"), x)
        return tuple(_product(attrs).infer(operands, _each(attrs)))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("operands are packed after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        places, present = _places(attrs)
        whole = np.zeros(prod(attrs["shape"]), xs[1].dtype)
        whole[places[present]] = xs[1].reshape(places.shape)[present]
        operands = [whole.reshape(attrs["shape"])]
        operands.insert(1 - attrs["operand"], xs[0])
        return _product(attrs).meaning(operands, _each(attrs))

    def cost(self, node: Node) -> Cost:
        first = unpacked(node)
        return Cost(first.op.cost(first).flops, sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        first = unpacked(node)
        found: list[int | None] = [None]
        found.insert(1 - int_attr(node.attrs, "operand"), axes[0])
        return None if axes[1] is not None else first.op.rows(first, found)


panels = register(Panels())
of_panels = register(OfPanels())


def unpacked(node: Node) -> Node:
    """The product of an ``of_panels`` node, of its input and of an operand that is not packed."""
    type = TensorType(node.inputs[1].type.dtype, int_tuple(node.attrs, "shape"))
    operands = [Input("operand", Kind.PARAM, type).value]
    operands.insert(1 - int_attr(node.attrs, "operand"), node.inputs[0])
    return Builder(name=node.name, span=node.span, phase=node.phase).node(
        _product(node.attrs), *operands, **_each(node.attrs)
    )


def packed(node: Node, operand: int, layout: Attrs) -> tuple[Node, Node]:
    """The nodes that replace a product of two operands: one that packs one of them, and one that reads both."""
    b = Builder(name=node.name, span=node.span, phase=node.phase)
    whole = node.inputs[operand]
    first = b.node(panels, whole, **layout)
    each = tuple(sorted(node.attrs.items()))
    last = b.node(
        of_panels, node.inputs[1 - operand], first.out, product=node.op.name, each=each, operand=operand,
        shape=whole.type.ints, **layout,
    )  # fmt: skip
    return first, last


def _product(attrs: Mapping[str, Any]) -> Op:
    return OPS[attrs["product"]]


def _each(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs["each"]}


def _pairs(attrs: Mapping[str, Any], name: str) -> list[tuple[int, int]]:
    return [(int(size), int(stride)) for size, stride in attrs[name]]


def _elements(attrs: Mapping[str, Any]) -> int:
    [(size, _)], panel = [attrs["lanes"]], int(attrs["panel"])
    units = prod(n for name in ("batch", "inner") for n, _ in _pairs(attrs, name))
    return units * -(-int(size) // panel) * panel


def _places(attrs: Mapping[str, Any]) -> tuple[Array, Array]:
    """For each element of the panels, the place in the operand that it is copied from, and whether there is one."""
    (size, stride), panel = attrs["lanes"], attrs["panel"]
    batch, inner = _pairs(attrs, "batch"), _pairs(attrs, "inner")
    lanes = np.arange(-(-size // panel) * panel).reshape(-1, panel)
    axes = [*(np.arange(n) * s for n, s in batch), np.arange(len(lanes)), *(np.arange(n) * s for n, s in inner)]
    shape = [*(len(axis) for axis in axes), panel]
    places = np.full(shape, attrs["start"], np.int64)
    for number, axis in enumerate(axes):
        if number != len(batch):
            places += axis.reshape([-1 if i == number else 1 for i in range(len(shape))])
    of_lane = lanes.reshape([*(1 for _ in batch), len(lanes), *(1 for _ in inner), panel])
    return places + of_lane * stride, np.broadcast_to(of_lane < size, shape)
