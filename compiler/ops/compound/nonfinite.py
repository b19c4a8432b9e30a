"""``nonfinite``: which of several tensors contain a nan or an infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Nonfinite(Op):
    """nonfinite(x0, x1, ...): b1[inputs], true for each input with an element that is not finite.

    The inputs are floats of any shapes.
    """

    name = "nonfinite"
    in_halves = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert types and all(t.dtype.is_float for t in types), f"nonfinite of {', '.join(map(str, types))}"
        return (TensorType(DType.B1, (len(types),)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        return (None,) * len(node.inputs)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.array([not np.isfinite(x).all() for x in xs])]

    def cost(self, node: Node) -> Cost:
        return Cost(sum(prod(t.ints) for t in node.input_types), sum(t.bytes for t in (*node.input_types, *node.types)))


nonfinite = register(Nonfinite())
