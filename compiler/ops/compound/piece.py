"""``piece``: elements of a tensor that follow one another in memory, where they lie. A pass makes it of a slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Piece(Op):
    """piece(x): the elements of x from the attribute ``first`` on, in row-major order, in ``shape``. A view, at no
    cost."""

    name = "piece"
    moves = True
    view = True
    part = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        first, shape = int_attr(attrs, "first"), int_tuple(attrs, "shape")
        if first < 0 or first + prod(shape) > prod(types[0].ints):
            raise Mismatch(f"a piece of {shape} from element {first} on of {types[0]}", "a piece inside the tensor")
        return (TensorType(types[0].dtype, shape),)

    def first_byte(self, node: Node) -> int:
        return int_attr(node.attrs, "first") * node.types[0].dtype.itemsize

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("pieces are made after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        first, shape = int(attrs["first"]), int_tuple(attrs, "shape")
        return [xs[0].reshape(-1)[first : first + prod(shape)].reshape(shape)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 0)


piece = register(Piece())
