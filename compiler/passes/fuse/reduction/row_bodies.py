"""Computes pointwise neighbours of a reduction, a softmax or a transpose in its kernel.

Before, the logits and their softmax are in memory in f32, too::

    %1 = cast %0 {dtype=f32} : f32[64, 1000]
    %2 = softmax %1 {axis=1} : f32[64, 1000]
    %3 = cast %2 {dtype=bf16} : bf16[64, 1000]

After::

    %1 = fused_rows %0 {cast to f32; softmax along 1; cast to bf16} : bf16[64, 1000]

A pointwise node before the op joins it if nothing else reads its result and no more bytes are moved or held: a kernel
that reads a row several times loads what the node reads each time. Only cheap steps are computed several times. A
pointwise node after the op joins it if nothing else reads the op's result, and its other operands are there as early.
``fits`` says whether the target has a kernel for the whole; the op's sums keep their order, so results keep their bits.
Sums of several tensors, or with several results, are those of ``fused_sums``. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value, origins_of
from dslc.compiler.ops.compound.fused import MAX_STEPS, PLACES
from dslc.compiler.ops.compound.fused_rows import core_op, fused_rows
from dslc.compiler.passes.fuse.body import Body, body_of, draws, is_pointwise, ops_of, packs_bits
from dslc.compiler.passes.queries import SMALL_BYTES
from dslc.compiler.passes.rebuild import reading

Fits: TypeAlias = Callable[[Node], bool]

_MAX_AGAIN: Final = 12  # steps that are computed several times


def row_bodies(graph: Graph, fits: Fits) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    cores = [node for node in graph.nodes if times_computed(node)]
    if not cores:
        return graph
    readers, roots = graph.readers(), set(graph.roots)
    depth: dict[Value, int] = {}  # how many nodes, one after another, a value waits for
    for node in graph.nodes:
        depth.update(dict.fromkeys(node.outputs, 1 + max((depth.get(v, 0) for v in node.inputs), default=0)))
    whole: dict[Node, Node] = {}  # the last node of a group -> the joined node over values of the old graph
    taken: set[Node] = set()
    for core in cores:
        before = [p for p in _producers(core) if p not in taken and _joins_before(p, core, readers, roots)]
        after = _after(core, readers, roots)
        if after is not None and any(depth.get(v, 0) > depth[core.out] for v in after.inputs):
            after = None  # the op would wait for another operand, and what it reads would stay in memory
        after = None if after in taken else after
        for makers, last in ((before, after), (before, None), ([], after)):
            if not makers and last is None:
                continue
            node = in_rows(makers, core, last)
            if len(body_of(node)) <= MAX_STEPS and fits(node):
                whole[last or core] = node
                taken |= {*makers, core, *([] if last is None else [last])}
                break
    return reading(graph, {last.out: node.out for last, node in whole.items()})


def row_fits(build: Build) -> Fits:
    """Whether the build's target computes such a node with one kernel a launch of its op."""
    return lambda node: lowered(node, build.target, vendor=False) is not None


def times_computed(node: Node) -> int:
    """How often the kernel of an op that takes neighbours computes an element of its inputs; 0 for other ops."""
    return core_op(node.attrs).input_reads if node.op is fused_rows else node.op.input_reads


def joins(made: Node, core: Node) -> bool:
    """Whether a pointwise node may be computed as often as such an op's kernel does it."""
    if not _plain(made) or not made.inputs:
        return False
    few = len(body_of(made)) <= _MAX_AGAIN and all(op.cheap for op in ops_of(made))
    return few or times_computed(core) == 1


def _producers(core: Node) -> list[Node]:
    return list(dict.fromkeys(v.producer for v in core.inputs if isinstance(v.producer, Node)))


def _joins_before(made: Node, core: Node, readers: Mapping[Value, list[Node]], roots: set[Value]) -> bool:
    if made.phase is not core.phase or not joins(made, core) or made.out in roots:
        return False
    if any(reader is not core for reader in readers.get(made.out, ())):
        return False
    times, read, own = times_computed(core), sum(v.type.bytes for v in dict.fromkeys(made.inputs)), made.out.type.bytes
    if 2 * core.out.type.bytes > own and read > own + max(SMALL_BYTES, own // 4):
        return False  # the node can overwrite one of several large inputs, the op can not
    return times * read <= read + (1 + times) * own


def _plain(node: Node) -> bool:
    if not is_pointwise(node) or len(node.outputs) > 1 or draws(node):
        return False
    return not packs_bits(node) and not any(op.name in PLACES for op in ops_of(node))


def _after(core: Node, readers: Mapping[Value, list[Node]], roots: set[Value]) -> Node | None:
    """The pointwise node that alone reads the result."""
    own = dict.fromkeys(readers.get(core.out, ()))
    if len(own) != 1 or core.out in roots:
        return None
    [node] = own
    same = node.types[0].shape == core.types[0].shape and node.phase is core.phase
    return node if same and _plain(node) else None


def in_rows(makers: list[Node], core: Node, last: Node | None = None) -> Node:
    """The node that computes an op with pointwise nodes before it and one after it."""
    nodes = [*makers, core, *([] if last is None else [last])]
    made = {node.out for node in nodes}
    body = Body(v for node in nodes for v in node.inputs if v not in made)
    end = nodes[-1]
    for node in nodes:
        body.add(node, is_last=node is end)
    return end.replaced(
        op=fused_rows,
        inputs=body.inputs,
        types=end.types,
        attrs={"body": tuple(body.steps)},
        origins=origins_of(nodes),
    )
