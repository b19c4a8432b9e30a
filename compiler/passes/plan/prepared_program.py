"""The program ``prepare``: what the programs of one target and of all sizes read prepared, each value once.

``prepare.py`` takes the values out of a program; ``expressions`` names them, so that equal values of several programs
have one name. ``merged`` joins the prepared graphs, and ``relocated`` gives a program the addresses of the joint one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.passes.plan.schedule import contents, first_bytes
from dslc.compiler.passes.queries import WEIGHTS, values_of_weights
from dslc.runtime.artifact.header_schema import PREPARE


def computing(updates: Sequence[tuple[Input, Value]]) -> Graph:
    """The graph that computes these values."""
    nodes = order(value for _, value in updates)
    read = dict.fromkeys(value.producer for node in nodes for value in node.inputs)
    sources = [each for each in read if isinstance(each, Input)]
    return Graph((*sources, *(source for source, _ in updates)), nodes, {}, tuple(updates))


def expressions(graph: Graph) -> dict[Value, str]:
    """For each value that needs nothing but weights, the digest of the expression that computes it from them."""
    found = {source.value: _digest(_leaf(source)) for source in graph.inputs if source.kind in WEIGHTS}
    fixed = values_of_weights(graph)
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
    return computing([*updates.values()])


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
