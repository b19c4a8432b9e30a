"""Takes out of ``predict`` what depends on the weights alone: the entry ``prepare`` computes it once after they change.

Before::

    %0 = data x : f32[1, 512]
    %1 = param w : f32[512, 512]
    %2 = cast %1 {dtype=bf16} : bf16[512, 512]  # w forward
    %3 = cast %0 {dtype=bf16} : bf16[1, 512]  # "" forward
    %4 = matmul %3, %2 {...} : bf16[1, 512]  # "" forward

After, with the rest as the program's ``prepared`` graph::

    %0 = data x : f32[1, 512]
    %1 = param w : f32[512, 512]
    %2 = prepared prepared.4f0c... : bf16[512, 512]
    %3 = cast %0 {dtype=bf16} : bf16[1, 512]  # "" forward
    %4 = matmul %3, %2 {...} : bf16[1, 512]  # "" forward

The pass comes after fusion, so the nodes are those that ``predict`` would run: the bits are the same. A prepared value
takes memory as long as a session lives. So a node moves only where computing it, with all that it needs, takes at least
``WORTH`` of the modelled time of the nodes that read it: at one row, copies of weights take as long as their products;
at a large batch, they are lost in them. If a program prepares anything, values of at most ``SMALL`` bytes move, too:
they take almost no memory, and their launches no time. Random draws, loops and results of the model stay.

A prepared value is named by the digest of the expression that computes it, so the programs of all sizes share those
that are equal. ``merged`` joins their prepared graphs; ``relocated`` gives a program the addresses of the joint one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dslc.compiler.cost import machine_for, seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, order
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.passes.plan.schedule import contents, first_bytes
from dslc.runtime.artifact.header_schema import PREPARE

#: The least part of the readers' modelled time for which a value is prepared. Below, the gain does not justify a second
#: copy of a weight.
WORTH: Final = 0.05
SMALL: Final = 65536
_WEIGHTS: Final = (Kind.PARAM, Kind.BUFFER, Kind.CONSTANT)


def prepare(program: Program, build: Build) -> Program:
    """The pass; only ``predict`` has such a part. Linear in nodes, and in the nodes that each prepared value needs."""
    if program.entry != "predict" or program.prepared is not None or not build.prepare:
        return program
    graph = program.graph
    if not _chosen(graph, build, 0):
        return program
    chosen = _chosen(graph, build, SMALL)
    names = expressions(graph)
    first = {names[value]: value for value in reversed(chosen)}  # equal values are prepared once
    inputs = {value: Input(f"prepared.{name}", Kind.PREPARED, value.type) for name, value in reversed(first.items())}
    new = {value: inputs[first[names[value]]].value for value in chosen}
    for node in graph.nodes:
        if new.keys().isdisjoint(node.outputs):
            new.update(zip(node.outputs, node.reading(new).outputs))
    rest = graph.replace_values(new)
    used = {value for node in rest.nodes for value in node.inputs} | {*rest.roots}
    kept = [i for i in graph.inputs if i.kind is not Kind.CONSTANT or i.value in used]
    return dataclasses.replace(
        program,
        graph=dataclasses.replace(rest, inputs=(*kept, *inputs.values())),
        prepared=_computing([(source, value) for value, source in inputs.items()]),
    )


def _computing(updates: Sequence[tuple[Input, Value]]) -> Graph:
    """The graph that computes these values."""
    nodes = order(value for _, value in updates)
    read = dict.fromkeys(value.producer for node in nodes for value in node.inputs)
    sources = [each for each in read if isinstance(each, Input)]
    return Graph((*sources, *(source for source, _ in updates)), nodes, {}, tuple(updates))


def _chosen(graph: Graph, build: Build, small: int) -> list[Value]:
    """The values that are prepared, in order: each is read by a node that stays. Those of at most ``small`` bytes need
    not be worth it, also if one launch computes several."""
    fixed = needing_weights(graph)
    machine = machine_for(build)
    time = {node: seconds(node, machine) for node in graph.nodes}
    reading: dict[Value, float] = {}  # the time of the nodes that stay and read a value, directly or through views
    read: set[Value] = set()  # by nodes that stay
    results = {*graph.roots}
    moved: set[Node] = set()
    for node in reversed(graph.nodes):
        if all(v not in read and v not in results for v in node.outputs):
            continue
        own = sum(reading.get(v, 0.0) for v in node.outputs)
        if (
            fixed.issuperset(node.outputs)
            and not node.op.view
            and results.isdisjoint(node.outputs)
            and all(t.bytes for t in node.types)
        ):
            needed = sum(time[each] for each in order(node.outputs))
            if needed >= WORTH * own or max(t.bytes for t in node.types) <= small:
                moved.add(node)
                continue
        for value in dict.fromkeys(node.inputs):
            read.add(value)
            reading[value] = reading.get(value, 0.0) + (own if node.op.view else time[node])
    return [value for node in graph.nodes if node in moved for value in node.outputs if value in read]


def needing_weights(graph: Graph) -> set[Value]:
    """The values that need nothing but parameters, buffers and constants, these included."""
    known = {source.value for source in graph.inputs if source.kind in _WEIGHTS}
    for node in graph.nodes:
        if known.issuperset(node.inputs) and not node.op.random and node.op is not scan:
            known.update(node.outputs)
    return known


def expressions(graph: Graph) -> dict[Value, str]:
    """For each value that needs nothing but weights, the digest of the expression that computes it from them."""
    found = {source.value: _digest(_leaf(source)) for source in graph.inputs if source.kind in _WEIGHTS}
    fixed = needing_weights(graph)
    for node in graph.nodes:
        if fixed.issuperset(node.outputs):
            text = f"{node.op.name} {sorted(node.attrs.items())!r} {' '.join(found[v] for v in node.inputs)}"
            for value in node.outputs:
                found[value] = _digest(f"{text} {value.index} {value.type}")
    return found


def _leaf(source: Input) -> str:
    stored = "" if source.stored is None else source.stored.digest
    return f"{source.kind.value} {source.name} {source.value.type} {stored}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def prepare_program(sizes: Mapping[str, int], programs: Iterable[Program]) -> Program | None:
    """The program ``prepare`` before any pass: what these programs of one target read prepared, each value once."""
    reading = [(p.target, p.prepared) for p in programs if p.prepared is not None]
    if not reading:
        return None
    return Program(PREPARE, sizes, merged([graph for _, graph in reading]), target=reading[0][0])


def merged(graphs: Sequence[Graph]) -> Graph:
    """The graph that computes what any of these prepared graphs computes, each value once."""
    inputs: dict[str, Input] = {}
    known: dict[str, Value] = {}
    updates: dict[str, tuple[Input, Value]] = {}
    for graph in graphs:
        names = expressions(graph)
        new: dict[Value, Value] = {}
        for source in graph.inputs:
            new[source.value] = inputs.setdefault(source.name, source).value
        for node in graph.nodes:
            if all(names[v] in known for v in node.outputs):
                new.update((v, known[names[v]]) for v in node.outputs)
                continue
            fresh = node.reading(new)
            for old, value in zip(node.outputs, fresh.outputs):
                new[old] = known.setdefault(names[old], value)
        for source, value in graph.updates:
            updates.setdefault(source.name, (inputs[source.name], new[value]))
    return _computing([*updates.values()])


def relocated(program: Program, joint: Program) -> Program:
    """The program with the region ``prepared`` of ``joint``, which computes all that the program reads there."""
    memory, other = program.memory, joint.memory
    assert memory is not None and other is not None, "both programs have their memory plans"
    offsets = {source.name: other.places[source.value] for source in joint.graph.inputs if source.kind is Kind.PREPARED}
    inputs = [source for source in program.graph.inputs if source.kind is Kind.PREPARED]
    moved = {memory.places[source.value]: offsets[source.name] for source in inputs}
    places = dict(memory.places)
    first = first_bytes(program.graph)
    for value, content in contents(program.graph).items():
        if (place := moved.get(memory.places[content])) is not None:
            places[value] = Place(place.region, place.offset + first[value])
    moves = tuple(dataclasses.replace(m, source=moved.get(m.source, m.source)) for m in memory.moves)
    plan = dataclasses.replace(memory, places=places, moves=moves, prepared_bytes=other.prepared_bytes)
    return dataclasses.replace(program, memory=plan)
