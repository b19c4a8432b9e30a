"""schedule: an order of the nodes that keeps few bytes alive."""

from __future__ import annotations

from graphs.layer_chain import chain_of_layers, planned
from graphs.random_graphs import (
    build_for,
)

from dslc.compiler.passes.plan.schedule import peak


def test_gradients_do_not_wait_for_the_end() -> None:
    graph = chain_of_layers(50)
    program = planned(graph, build_for(graph))
    assert program.schedule is not None and program.memory is not None
    assert not program.memory.moves
    # 50 forward values and a few more, not also 50 gradients
    assert program.memory.work_bytes <= 53 * 64
    assert peak(graph, program.schedule) < 0.7 * peak(graph, graph.nodes)
