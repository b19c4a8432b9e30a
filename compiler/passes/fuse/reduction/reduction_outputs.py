"""Lets a reduction that computes its operand also store it if other nodes need it. Saves one read.

Before::

    %1 = fused %y, %d1, %d2 {where(y <= 0, 0, d1 + d2)} : bf16[8, 14, 14, 64]
    %2, %3 = fused_sums %1, %x, ... {...} : f32[64], f32[64]
    %4 = fused %1, %x, %2, %3, ... {...} : bf16[8, 14, 14, 64]

After::

    %2, %3, %1 = fused_sums %y, %d1, %d2, %x, ... {where(y <= 0, 0, d1 + d2), ..., kept=(...)} : f32[64], f32[64], ...
    %4 = fused %1, %x, %2, %3, ... {...} : bf16[8, 14, 14, 64]

This also holds for a dropout, and for a plain ``sum`` or ``sum_to``, e.g. of a bias's gradient, which becomes a
``fused_sums``. A sum that keeps the axes that it reduces becomes one with a reshape, if nothing else reads its operand,
that operand is cheap, and ``row_bodies`` has no kernel for both. Values that no other node needs, or that are cheaper
to recompute, were already handled by ``inline``. Results keep their bits, up to the order of a sum. GPU only; linear in
nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import MAX_STEPS
from dslc.compiler.ops.compound.fused_sums import full_shape, fused_sums
from dslc.compiler.passes.fuse.body import body_of, draws, has_neighbours, is_pointwise_or_draw, ops_of, with_producers
from dslc.compiler.passes.fuse.reduction.row_bodies import Fits, in_rows
from dslc.compiler.passes.queries import is_small, needed_after
from dslc.compiler.passes.rebuild import reading

_MAX_MOVED: Final = 8  # nodes that move before the reduction with it


def reduction_outputs(graph: Graph, fits: Fits = lambda node: False) -> Graph:
    """The graph with such reductions; ``fits`` is that of ``row_bodies``. Idempotent."""
    instead: dict[Value, Value] = {}
    for made, operand in _operands(graph, fits).items():
        whole = _storing(operand, made)
        instead.update((old, _shaped(value, old)) for old, value in zip(operand.sums.outputs, whole.outputs))
        if operand.wanted:
            instead[made.out] = whole.outputs[-1]
    return reading(graph, instead)


@dataclasses.dataclass(frozen=True)
class _Operand:
    """A reduction that will compute its operand, and whether other nodes read the operand."""

    sums: Node
    wanted: bool


def _operands(graph: Graph, fits: Fits) -> dict[Node, _Operand]:
    """The operand's pointwise producer -> the reduction that will compute it."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, _Operand] = {}
    for node in graph.nodes:
        if (node.op is not fused_sums and _reduced(node) is None) or "kept" in node.attrs:
            continue
        for value in node.inputs:
            made = value.producer
            if isinstance(made, Node) and made not in found and _fits(made, node):
                wanted = made.out in roots or len(readers[made.out]) > 1
                if _keeps_axes(node) and (wanted or not _is_cheap(made) or fits(in_rows([made], node))):
                    continue
                others = [v for v in node.inputs if v is not value]
                moved = needed_after(made, others, position, _MAX_MOVED, refused=fused_sums)
                if moved is not None and not any(n in found for n in moved):
                    found[made] = _Operand(node, wanted)
                    break
    return found


def _fits(made: Node, sums: Node) -> bool:
    """Whether the node is a chain of the shape of the summed tensor."""
    if not is_pointwise_or_draw(made) or is_small(made.out) or (draws(made) and not has_neighbours(made.out)):
        return False
    if sums.op is not fused_sums:
        return True
    steps = len(body_of(made)) + len(body_of(sums))
    return steps <= MAX_STEPS and made.types[0].ints == full_shape(sums)


def _keeps_axes(node: Node) -> bool:
    """Whether a node is a plain sum that keeps the axes that it reduces."""
    return node.op is not fused_sums and summed_over(node) is None


def _is_cheap(made: Node) -> bool:
    """Whether threads that add up columns compute a value while they wait for memory: they hide no exponential."""
    return all(op.cheap for op in ops_of(made))


def summed_over(node: Node) -> tuple[int, ...] | None:
    """The reduced axes of a plain sum that drops them and keeps the dtype; None for any other node."""
    over = _reduced(node)
    return over if over is not None and node.types[0].rank + len(over) == node.input_types[0].rank else None


def _reduced(node: Node) -> tuple[int, ...] | None:
    """The reduced axes of a plain sum, which drops them or keeps them with size 1, and keeps the dtype; None for any
    other node. Small integers and b1 are summed in i64, which a ``fused_sums`` does not do."""
    if node.op.name not in ("sum", "sum_to") or node.input_types[0].dtype is not node.types[0].dtype:
        return None
    if node.op.name == "sum":
        return int_tuple(node.attrs, "over")
    wide, small = node.input_types[0].ints, node.types[0].ints
    lost = len(wide) - len(small)
    return tuple(axis for axis, size in enumerate(wide) if axis < lost or small[axis - lost] != size) or None


def _storing(operand: _Operand, made: Node) -> Node:
    """The reduction that computes its operand; the operand is its last output if other nodes read it."""
    sums, over = operand.sums, _reduced(operand.sums)
    if over is not None:
        plain: dict[str, Attr] = {"body": (), "summed": (0,), "over": over}
        [wide] = sums.input_types
        left = tuple(size for axis, size in enumerate(wide.shape) if axis not in over)
        sums = sums.replaced(op=fused_sums, types=(TensorType(sums.types[0].dtype, left),), attrs=plain)
    whole = with_producers(sums, [made])
    if not operand.wanted:
        return whole
    number = len(whole.inputs) + len(body_of(made)) - 1  # the producer's steps come first
    attrs = {**whole.attrs, "kept": (number,)}
    types = (*whole.types, made.types[0])
    return whole.replaced(types=types, attrs=attrs)


def _shaped(value: Value, old: Value) -> Value:
    """A value in the shape of an old one that kept reduced axes."""
    if value.type.shape == old.type.shape:
        return value
    assert isinstance(value.producer, Node)
    b = Builder().at(value.producer, value.producer.phase)
    return b(OPS["reshape"], value, shape=old.type.shape)
