"""The proofs find planted faults, one of each kind, and say which; ``test_planted_errors.py`` plants many at random."""

from __future__ import annotations

import dataclasses

import pytest
from graphs.random_graphs import build_for, graph_of, input_of

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.graph import Inferred, verify_graph
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.runner import run_passes


def _small() -> tuple[Input, Input, Node, Node, Graph]:
    x, w = input_of("x", Kind.DATA, 3), input_of("w", Kind.PARAM, 3)
    a = Builder(name="a").node(OPS["mul"], x.value, w.value)
    b = Builder(name="b").node(OPS["exp"], a.out)
    return x, w, a, b, Graph((x, w), (a, b), {"result.y": b.out}, ((w, b.out),))


def test_a_sound_graph_passes() -> None:
    verify_graph(_small()[-1])


def _typed(op: str, value: Value, *shape: int) -> Node:
    return Node(OPS[op], (value,), (TensorType(DType.F32, shape),), name="wrong")


def test_planted_faults_in_graphs() -> None:
    x, w, a, b, good = _small()
    other = input_of("w", Kind.PARAM, 3)
    bad_type = _typed("exp", a.out, 4)
    misfit = Node(OPS["add"], (a.out, input_of("z", Kind.DATA, 4).value), (a.out.type,), name="wrong")
    z = misfit.inputs[1].producer
    assert isinstance(z, Input)
    faults: dict[str, Graph] = {
        "not computed before": dataclasses.replace(good, nodes=(b, a)),
        "is not computed before it is read": dataclasses.replace(good, nodes=(b,)),
        "but says": Graph((x, w), (a, bad_type), {"y": bad_type.out}),
        "does not fit": Graph((x, w, z), (a, misfit), {"y": misfit.out}),
        "output result.y is not computed": dataclasses.replace(good, nodes=(a,), updates=()),
        "two inputs": dataclasses.replace(good, inputs=(x, w, other)),
        "no state": dataclasses.replace(good, updates=((x, b.out),)),
        "is no state of this graph": dataclasses.replace(good, updates=((other, b.out),)),
        "updated twice": dataclasses.replace(good, updates=((w, b.out), (w, a.out))),
    }
    longer = input_of("w", Kind.PARAM, 4)
    faults["w is f32[4], its new value f32[3]"] = Graph((x, longer), (), {}, ((longer, x.value),))
    known = Inferred()
    verify_graph(good, known)
    for said, graph in faults.items():
        for inferred in (None, known):
            with pytest.raises(VerifyError) as caught:
                verify_graph(graph, inferred)
            assert said in str(caught.value), (said, str(caught.value))


def test_a_fault_shows_its_neighbours_and_the_pass() -> None:
    *_, good = _small()

    def breaking(program: Program, build: Build) -> Program:
        return dataclasses.replace(program, graph=dataclasses.replace(good, nodes=good.nodes[::-1]))

    with pytest.raises(VerifyError) as caught:
        run_passes(Program("predict", {}, good), build_for(good), (breaking,))
    text = str(caught.value)
    assert "after breaking: exp b:" in text and "\n> " in text and "mul" in text


def test_planted_faults_in_programs() -> None:
    *_, graph = _small()
    build = build_for(graph)
    program = memory(schedule(Program("predict", {}, graph), build), build)
    plan = program.memory
    assert plan is not None and plan.moves
    for memory_plan, said in (
        (dataclasses.replace(plan, moves=()), "state w does not hold its new value"),
        (dataclasses.replace(plan, io_bytes=plan.io_bytes - 64), "ends outside io"),
        (dataclasses.replace(plan, results={}), "has no place"),
    ):
        with pytest.raises(VerifyError, match=said):
            verify_program(dataclasses.replace(program, memory=memory_plan), build)
    with pytest.raises(VerifyError, match="may not lie at state"):
        verify_program(program, dataclasses.replace(build, state={"w": 64}, state_bytes=128))
    unused = dataclasses.replace(program, graph=graph_of(list(graph.inputs), dict(graph.outputs)))
    with pytest.raises(VerifyError, match="a state that is not updated"):
        verify_program(unused, build)
