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
that are equal. ``prepared_program.py`` makes one program of what they prepare.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.cost import machine_for, seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, order
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.plan.prepared_program import computing, expressions
from dslc.compiler.passes.queries import values_of_weights
from dslc.compiler.passes.rebuild import reading

#: The least part of the readers' modelled time for which a value is prepared. Below, the gain does not justify a second
#: copy of a weight.
WORTH: Final = 0.05
SMALL: Final = 65536  # bytes


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
    rest = reading(graph, {value: inputs[first[names[value]]].value for value in chosen})
    used = {value for node in rest.nodes for value in node.inputs} | {*rest.roots}
    kept = [i for i in graph.inputs if i.kind is not Kind.CONSTANT or i.value in used]
    return dataclasses.replace(
        program,
        graph=dataclasses.replace(rest, inputs=(*kept, *inputs.values())),
        prepared=computing([(source, value) for value, source in inputs.items()]),
    )


def _chosen(graph: Graph, build: Build, small: int) -> list[Value]:
    """The values that are prepared, in order: each is read by a node that stays. Those of at most ``small`` bytes need
    not be worth it, also if one launch computes several."""
    fixed = values_of_weights(graph)
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
