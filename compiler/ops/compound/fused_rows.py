"""``fused_rows``: a reduction or another op that is not pointwise, with pointwise ops before and after it. Passes make
it; the language has no function for it."""

from __future__ import annotations

from typing import ClassVar, Final

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import OPS, KernelKind, Op, Pointwise, register
from dslc.compiler.ops.compound.fused import BITS, PLACES, Fused, expanded, steps

_NO_CORES: Final = ("full", "dropout", *BITS, *PLACES)


class FusedRows(Fused):
    """fused_rows(x0, x1, ...): the result of the last step of the attribute ``body``, which is as in ``fused``.

    One step, the core, is neither pointwise nor another step of `fused`. It has one result. The steps before it compute
    its inputs; the steps after it have the shape of its result. Every step rounds its result to its dtype, so the node
    gives the same bits as separate nodes.
    """

    name = "fused_rows"
    kernel_kind: ClassVar[KernelKind] = "rest"  # that of its core: ``cost.kind``
    elementwise = False
    inplace = ()  # its kernel may read a row again after it stored the first elements


fused_rows = register(FusedRows())


def is_core(op: Op) -> bool:
    """Whether a step of this op is the core."""
    return not isinstance(op, Pointwise) and op.name not in _NO_CORES


def core_op(attrs: Attrs) -> Op:
    """The op of the core of a ``fused_rows`` with these attributes."""
    [core] = [op for name, _, _ in steps(attrs) if is_core(op := OPS[name])]
    return core


def core_of(node: Node) -> tuple[Node, list[Node]]:
    """The core of a ``fused_rows``, and all its steps, as nodes that read its inputs."""
    nodes = expanded(node.inputs, node.attrs)
    [core] = [step for step in nodes if is_core(step.op)]
    return core, nodes
