"""Scratch memory of kernels: planned like any value, apart from what its node reads and writes, and proven to be."""

from __future__ import annotations

import dataclasses

import pytest

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.ops.elementwise.arithmetic import add
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.plan.select_kernels import select

BUILD = Build(provider="own")


def _planned() -> Program:
    """The sum of two products, whose weights are packed."""
    x, w, u = (
        Input(name, Kind.DATA, TensorType(DType.F32, shape))
        for name, shape in (("x", (64, 32)), ("w", (80, 32)), ("u", (80, 32)))
    )
    b = Builder()
    first, second = (b.node(matmul, x.value, side.value, transpose_a=False, transpose_b=True) for side in (w, u))
    total = b.node(add, first.out, second.out)
    graph = Graph(inputs=(x, w, u), nodes=(first, second, total), outputs={"y": total.out}, updates=())
    program = Program("predict", {}, graph)
    for step in (select, schedule, memory):
        program = step(program, BUILD)
    return program


def test_scratch_is_planned() -> None:
    program = _planned()
    verify_program(program, BUILD)
    assert len(program.scratch) == 2
    assert program.memory is not None and set(program.memory.scratch) == set(program.scratch)


@pytest.mark.parametrize("wrong", ["on an input", "on the output", "outside", "unaligned", "missing", "in the state"])
def test_scratch_at_a_wrong_place_is_found(wrong: str) -> None:
    program = _planned()
    plan = program.memory
    assert plan is not None
    node = next(n for n in program.scratch if n is not program.graph.nodes[-1])
    [place] = plan.scratch[node]
    places: tuple[Place, ...] = {
        "on an input": (plan.places[node.inputs[0]],),
        "on the output": (plan.places[node.outputs[0]],),
        "outside": (Place("work", plan.work_bytes),),
        "unaligned": (Place("work", place.offset + 8),),
        "missing": (),
        "in the state": (Place("state", 0),),
    }[wrong]
    broken = dataclasses.replace(plan, scratch={**plan.scratch, node: places})
    with pytest.raises(VerifyError):
        verify_program(dataclasses.replace(program, memory=broken), BUILD)


def test_scratch_over_a_value_that_is_read_later_is_found() -> None:
    program = _planned()
    plan, order = program.memory, program.schedule
    assert plan is not None and order is not None
    earlier, later, _ = order
    broken = dataclasses.replace(plan, scratch={**plan.scratch, later: (plan.places[earlier.outputs[0]],)})
    with pytest.raises(VerifyError, match="overwritten"):
        verify_program(dataclasses.replace(program, memory=broken), BUILD)
