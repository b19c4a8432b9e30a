"""staged_fourier: a Fourier transform by a kernel that keeps its numbers in fast memory. The pass ``transforms`` makes
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients
from dslc.compiler.ops.products.fourier import fourier, given_of
from dslc.compiler.ops.products.fourier_plan import Plan, plan_of

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class StagedFourier(Op):
    """staged_fourier(re[, im], roots): what ``fourier`` computes, with its attributes, by the plan of
    ``fourier_plan.py``; ``roots`` are those of the plan."""

    name = "staged_fourier"
    kernel_kind = "transforms"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        *x, roots = types
        found = fourier.infer(x, attrs)
        if roots.rank != 2 or roots.shape[1] != 2 or roots.dtype is not x[0].dtype.computed:
            raise Mismatch(f"{roots} as roots of {x[0]}", None, "E0302")
        return found

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("transforms are planned after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return fourier.meaning(xs[:-1], attrs)

    def cost(self, node: Node) -> Cost:
        """Of all kernels; two exchange their numbers through memory."""
        plan, x = plan_of_node(node), node.input_types[0]
        assert plan is not None
        lines = prod(x.ints) // given_of(node)
        exchanged = 4 * (len(plan.orders) - 1) * lines * plan.length * x.dtype.computed.itemsize
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(lines * plan.operations, moved + exchanged)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[-1] is not None else fourier.rows(node, axes[:-1])


def plan_of_node(node: Node) -> Plan | None:
    """The plan of a transform, of this op or of ``fourier``; None if there is none."""
    x, (count, outputs, axis) = node.input_types[0], (int_attr(node.attrs, n) for n in ("count", "outputs", "axis"))
    parts = len(node.inputs) - (node.op is staged_fourier)
    real = "given" if parts == 1 else "results" if node.attrs["parts"] != "both" else ""
    return plan_of(count, given_of(node), outputs, real, x.dtype.computed.itemsize, prod(x.ints[axis + 1 :]) > 1)


staged_fourier = register(StagedFourier())
