"""Proves that a program computes its graph: its schedule, its memory, its streams and its loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dslc.compiler.ir.build import Build, build_of_body
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.verify.error import VerifyError, fault_at
from dslc.compiler.ir.verify.memory import Replay
from dslc.compiler.ir.verify.streams import verify_streams


def verify_program(program: Program, build: Build) -> None:
    """Checks that a finished program computes its graph: order, addresses, moves. Fields that are still None are
    skipped.

    Raises VerifyError. About linear in nodes.
    """
    if program.schedule is not None:
        _verify_schedule(program.graph, program.schedule)
    if program.memory is not None:
        if program.schedule is None:
            raise VerifyError("memory is planned before the order is known")
        Replay(program.graph, program.schedule, program.memory, build, program.scratch).run()
        verify_streams(program, partial(fault_at, program.graph))
        for node in program.graph.nodes:
            if node.op is scan and node not in program.kernels:
                _verify_loop(program, node, build)


def _verify_loop(program: Program, node: Node, build: Build) -> None:
    """Checks the program of a loop's body, and that its work region fits into the scratch memory of its node."""
    body = program.loops.get(node)
    if body is None or body.memory is None or body.graph is not body_of(node.attrs):
        raise fault_at(program.graph, node, "its body is not planned")
    room = sum(program.scratch.get(node, ()))
    if body.memory.work_bytes > room:
        raise fault_at(program.graph, node, f"its body works in {body.memory.work_bytes} bytes, it has {room}")
    verify_program(body, build_of_body(body.graph, build))


def _verify_schedule(graph: Graph, schedule: Sequence[Node]) -> None:
    done: set[Node] = set()
    known = {i.value for i in graph.inputs}
    for node in schedule:
        if node in done:
            raise fault_at(graph, node, "is scheduled twice")
        done.add(node)
        for i, value in enumerate(node.inputs):
            if value not in known:
                raise fault_at(graph, node, f"is scheduled before its input {i}")
        known.update(node.outputs)
    for node in graph.nodes:
        if node not in done:
            raise fault_at(graph, node, "is not scheduled")
    if len(done) != len(graph.nodes):
        raise VerifyError(f"{len(done) - len(graph.nodes)} nodes are scheduled that the graph does not have")
