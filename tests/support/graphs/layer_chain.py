"""A chain of layers with gradients and updates, planned."""

from __future__ import annotations

from graphs.random_graphs import (
    graph_of,
    input_of,
)

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule


def planned(graph: Graph, build: Build, entry: str = "predict") -> Program:
    program = memory(schedule(Program(entry, {}, graph), build), build)
    verify_program(program, build)
    return program


def chain_of_layers(layers: int) -> Graph:
    """Like training: forward values kept for the backward pass, an update per layer at the end of the graph."""
    x = input_of("x", Kind.DATA, 16)
    weights = [input_of(f"w{i}", Kind.PARAM, 16) for i in range(layers)]
    value, kept = x.value, []
    for i, w in enumerate(weights):
        kept.append(value)
        value = Builder(name=f"f{i}")(OPS["mul"], value, w.value)
    updates = []
    for i in reversed(range(layers)):
        gradient = Builder(name=f"w{i}", phase=Phase.BACKWARD)(OPS["mul"], value, kept[i])
        value = Builder(name=f"d{i}", phase=Phase.BACKWARD)(OPS["mul"], value, weights[i].value)
        updates.append((weights[i], Builder(name=f"u{i}", phase=Phase.UPDATE)(OPS["sub"], weights[i].value, gradient)))
    return graph_of([x, *weights], {"result.y": value}, updates[::-1])
