"""gradient: the derivative of a tensor as a value that a model or its loss computes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op
from dslc.compiler.ir.types import TensorType

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Gradient(Op):
    """gradient(y, x): the gradient of the sum of y with respect to x, through which y is computed.

    It is in checked models only. As soon as the sizes are known, ``passes/lower/gradient/gradients.py`` puts the
    nodes of the gradient in its place. So it has no kernel, and the table of ops does not list it.
    """

    name = "gradient"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        for what, type in zip(("differentiates", "is with respect to"), types, strict=True):
            if not type.dtype.is_float:
                help = "only float tensors have gradients; `cast` gives none to integers"
                raise Mismatch(f"`gradient` {what} a float tensor, not {type}", help, "E0204")
        return (types[1],)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise AssertionError("replaced before differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        raise AssertionError("replaced before any node is computed")

    def cost(self, node: Node) -> Cost:
        raise AssertionError("replaced before kernels are chosen")


gradient = Gradient()


class GradientFunction(Function):
    """gradient(y, x): the gradient of ``y`` with respect to ``x``, a tensor from which ``y`` is computed; of its type.

    ``x`` may be an input, a parameter or any tensor in between; what ``y`` does not depend on through ``x`` counts as
    constant. For a ``y`` that is no scalar it is the gradient of the sum of its elements: if ``y`` has one value for
    each row, and rows do not depend on each other, each row gets its own gradient. The result may be used like any
    tensor, in the loss too: gradients of gradients are computed, to any order.

    given: x: [B, 8]
    >>> energy = sum(x^4, over=1)
    >>> force = -gradient(energy, x)
    """

    name = "gradient"

    def build(self, call: Call, y: Value, x: Value) -> Value:
        return call.emit(gradient, y, x)


function(GradientFunction())
