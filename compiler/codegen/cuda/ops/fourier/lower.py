"""The launches of a Fourier transform: one kernel, or two with numbers between them in scratch memory."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dslc.compiler.codegen.cuda.ops.fourier.kernel import Side, Transform
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.attrs import float_attr, int_attr, str_attr
from dslc.compiler.ops.products.fourier import PARTS
from dslc.compiler.ops.products.fourier_plan import root_places
from dslc.compiler.ops.products.staged_fourier import plan_of_node


@lowers("staged_fourier", target="cuda")
def staged_fourier(node: Node) -> list[Launch]:
    *x, roots = node.inputs
    plan, outputs = plan_of_node(node), int_attr(node.attrs, "outputs")
    assert plan is not None
    axis, shape, dtype = int_attr(node.attrs, "axis"), x[0].type.ints, x[0].type.dtype
    outer, given, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if not outer * inner:
        return []
    twice = node.attrs["twice"]
    parts = PARTS[str_attr(node.attrs, "parts")]
    whole = Transform(
        dtype, plan.orders[0], plan.count, int_attr(node.attrs, "sign"), float_attr(node.attrs, "scale"), plan.halved,
        outer * inner, 1, inner, Side(given, tuple(range(len(x))), twice=twice == "given"),
        Side(outputs, parts, twice=twice == "results"), 0, plan.chirp,
    )  # fmt: skip
    if len(plan.orders) == 1:
        return [Launch(whole, node.inputs, node.outputs)]
    n1, n2 = plan.lengths
    between = Side(plan.count, ())
    held = Scratch(0, 2 * outer * plan.count * inner * dtype.computed.itemsize)
    own, others = (root_places(orders) for orders in plan.orders)
    first = replace(
        whole, scale=1.0, lines=outer * n2 * inner, middle=n2, results=between, roots=0, factors=own + others
    )
    last = replace(
        whole, orders=plan.orders[1], lines=outer * n1 * inner, middle=n1, given=replace(between, near=True), roots=own
    )
    return [Launch(first, node.inputs, (held,)), Launch(last, (held, roots), node.outputs)]
