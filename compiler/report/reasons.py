"""Why the compiler did what it did with a part of a model: the dtype of each node, what it did not recompute or fuse,
and what libraries compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from dslc.compiler.codegen.target import OTHERWISE, LibraryCall
from dslc.compiler.codegen.targets import target_of, traits_of
from dslc.compiler.cost import machine_of
from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.graph import Graph, Node, Origin, Phase
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.strided_attention import why_parts
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.compiler.passes.fuse.pointwise.pointwise import why_not_fused
from dslc.compiler.passes.lower.dtypes.wide import WHY, in_train_section, wide
from dslc.compiler.passes.lower.written_attention import why_products, written
from dslc.compiler.passes.mirror.training_graph import TrainingGraph

#: Whether a node with this origin belongs to the part.
Wanted: TypeAlias = Callable[[Origin], bool]


def reasons(
    programs: Mapping[str, Program], chosen: Wanted, mirror: Sequence[str], asked: Precision | None
) -> Iterable[str]:
    """A line for each decision: ``PASS: OP NAME ...``. Arguments as of ``history``."""
    if asked is not None:
        yield from _dtypes(programs, chosen, asked)
    yield from _attention(programs, chosen, asked)
    yield from _not_mirrored(programs, chosen, mirror)
    yield from _not_fused(programs, chosen)
    yield from _libraries(list(programs.values())[-1], chosen)


def origins_of(node: Node) -> tuple[Origin, ...]:
    """The path and place of each node of the source that became a part of this one."""
    return node.origins or ((node.name, node.span),)


def nodes_of(graph: Graph, chosen: Wanted) -> list[Node]:
    """The nodes of the part."""
    return [node for node in graph.nodes if any(map(chosen, origins_of(node)))]


def _dtypes(programs: Mapping[str, Program], chosen: Wanted, asked: Precision) -> Iterable[str]:
    """Why forward nodes store their floats in their dtype, if not all nodes of the model have the same."""
    before, half = _before(programs, "precision"), asked.compute in (DType.BF16, DType.F16)
    if before is None or not (half or asked.nodes):
        return
    groups = wide(before.graph, asked.nodes) if half else {}
    for node in nodes_of(before.graph, chosen):
        if node.phase is not Phase.FORWARD or not any(t.dtype is DType.FLOAT for t in node.types):
            continue
        origin = (node.name, node.span)
        if in_train_section(node):
            dtype, why = DType.F32 if half else asked.compute, "it belongs to the train section"
        elif origin in asked.nodes:
            dtype, why = asked.nodes[origin], "the source asks for it"
        elif origin in groups:
            dtype, why = DType.F32, WHY[groups[origin]]
        else:
            dtype, why = asked.compute, "the precision of the model"
        yield f"precision: {node.op.name} {node.name} computes in {dtype}: {why}"


def _not_fused(programs: Mapping[str, Program], chosen: Wanted) -> Iterable[str]:
    """Why pointwise nodes remain separate after the pass ``fuse``."""
    before = _before(programs, "fuse")
    if before is None:
        return
    if programs["fuse"].graph is before.graph:
        yield "fuse: fusion is off (fuse: false)"
        return
    told = why_not_fused(before.graph)
    for node in nodes_of(before.graph, chosen):
        if node in told and isinstance(node.op, Pointwise):
            yield f"fuse: {node.op.name} {node.name} ({node.phase.value}) is not fused with its readers: {told[node]}"


def _attention(programs: Mapping[str, Program], chosen: Wanted, asked: Precision | None) -> Iterable[str]:
    """Which kernels compute attention on a GPU, and why."""
    before = _before(programs, "attention_views")
    if before is None or not traits_of(before.target).has_tensor_cores:
        return
    source = _before(programs, "written_attention")
    if source is not None and asked is not None:
        for each in written(source):
            why = why_products(each, asked) if any(map(chosen, origins_of(each.softmax))) else None
            if why is not None:
                yield f"attention: softmax {each.softmax.name} stays between products, with all scores in memory: {why}"
    for node in nodes_of(before.graph, chosen):
        if node.op in (sdpa, sdpa_grad):
            why = why_parts(node)
            form = "in tiles: its scores are not in memory" if why is None else f"with all scores in memory: {why}"
            yield f"attention: {node.op.name} {node.name} ({node.phase.value}) is computed {form}"


def _libraries(program: Program, chosen: Wanted) -> Iterable[str]:
    """Whether a library or own kernels compute each node that a library is for, and why, in a build that may call
    libraries."""
    if not program.vendor:
        return
    target = target_of(program.target, vendor=True)
    for node in nodes_of(program.graph, chosen):
        why = target.why_no_library(node)
        if why is None or node not in program.kernels:
            continue
        calls = [launch.spec.library for launch in program.kernels[node] if isinstance(launch.spec, LibraryCall)]
        if calls and why == OTHERWISE:
            told = f"is a call of {calls[0]}: by the rules it computes such nodes"
        elif calls:
            told = f"is a call of {calls[0]}, which was measured faster; by the rules own kernels compute it ({why})"
        elif why == OTHERWISE:
            told = f"runs as own kernels, which were measured faster than {target.library(node)}"
        elif target.library(node) is not None:
            told = f"runs as own kernels, unless a library is measured faster: {why}"
        else:
            told = f"runs as own kernels, because no library computes it: {why}"
        yield f"select: {node.op.name} {node.name} ({node.phase.value}) {told}"


def _not_mirrored(programs: Mapping[str, Program], chosen: Wanted, said: Sequence[str]) -> Iterable[str]:
    """Which results are kept for the backward pass, and why they are not recomputed."""
    before = _before(programs, "mirror")
    if before is None or not any(n.phase is Phase.BACKWARD for n in before.graph.nodes):
        return
    training, after = TrainingGraph(before.graph, machine=machine_of(before.target)), programs["mirror"]
    again = {(n.name, n.op.name) for n in after.graph.nodes if n.phase is Phase.MIRROR}
    for node in nodes_of(before.graph, chosen):
        kept = [v for v in node.outputs if v in training.wanted]
        if not kept or (node.name, node.op.name) in again:
            continue
        if not training.may(node):
            why = f"`{node.op.name}` is never recomputed, because it is expensive"
        elif said:
            why = said[0]
        elif after.mirrored is None:
            why = "recomputation does not pay off in this program"
        else:
            why = "recomputing it would not lower the peak, or would take too much time for the bytes it saves"
        yield f"mirror: {node.op.name} {node.name} is kept for the backward pass: {why}"


def _before(programs: Mapping[str, Program], name: str) -> Program | None:
    """The input program of a pass."""
    names = list(programs)
    return programs[names[names.index(name) - 1]] if name in names else None
