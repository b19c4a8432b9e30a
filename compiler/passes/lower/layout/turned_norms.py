"""Norms of transposed tensors, and their gradients, computed along the same axis of the tensors themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.passes.lower.layout.axis_order import Perm

_NORMS: Final = ("layernorm", "layernorm_grad", "rmsnorm", "rmsnorm_grad")


def is_norm(node: Node) -> bool:
    return node.op.name in _NORMS


def turned_norm(
    node: Node, perm: Perm, turned: Mapping[Value, tuple[Perm, Value]], plain: Callable[[Value], Value]
) -> dict[Value, tuple[Perm | None, Value]] | None:
    """The results of a norm of ``transpose(u, perm)``: for each old value the permutation by which it is turned, None
    for weights, and the new value. Statistics have the axes but that of the norm. None if an input is not turned alike.

    ``turned``: the permutation of an old value and what it is the transpose of; ``plain``: its new value as it is.
    """
    axis, rank = int_attr(node.attrs, "axis"), len(perm)
    left = tuple(a - (a > perm[axis]) for place, a in enumerate(perm) if place != axis)
    of_rank = {rank: perm, rank - 1: left}
    inputs: list[Value] = []
    for old in node.inputs:
        back = of_rank.get(old.type.rank)
        known = (back, plain(old)) if back is None else turned.get(old)
        if known is None or known[0] != back:
            return None
        inputs.append(known[1])
    fresh = Builder().at(node, node.phase).node(node.op, *inputs, **{**node.attrs, "axis": perm[axis]})
    return {old: (of_rank.get(old.type.rank), new) for old, new in zip(node.outputs, fresh.outputs)}
