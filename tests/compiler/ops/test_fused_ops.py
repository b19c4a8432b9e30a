"""The ops that passes make of several others: each is a FusedOp, and says truly whether its steps read neighbours."""

from __future__ import annotations

import pytest
from gpu_kernels.sample_nodes import node_of
from op_samples.every import SAMPLES

from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.compound.fused import PLACES, FusedOp, is_elementwise, steps_of
from dslc.compiler.report.facts import what

#: Ops whose ``body`` has steps; those of a ``contraction`` read its product, which is none.
NAMES = [name for name, samples in SAMPLES.items() if any("body" in s.attrs for s in samples) and name != "contraction"]
#: Steps without neighbours that are no pointwise ops.
LOCAL = ("dropout", "full", "pack_bits", "unpack_bits", *PLACES)


def test_the_samples_have_all_of_them() -> None:
    assert {"fused_rows", "fused_stack", "fused_sums", "finished_sums"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_op_with_steps_is_a_fused_op(name: str) -> None:
    for number in range(len(SAMPLES[name])):
        node, _ = node_of(name, number, "f32")
        assert isinstance(node.op, FusedOp)
        steps = steps_of(node)
        assert [step.op.name for step in steps] == [step[0] for step in node.attrs["body"]]
        local = all(isinstance(step.op, Pointwise) or step.op.name in LOCAL for step in steps)
        assert is_elementwise(node.op) == (local and name not in ("fused_sums", "finished_sums"))


@pytest.mark.parametrize("name", NAMES)
def test_reports_name_the_steps(name: str) -> None:
    for number in range(len(SAMPLES[name])):
        node, _ = node_of(name, number, "f32")
        names = [step.op.name for step in steps_of(node) if step.op.name != "full"]
        shown = what(node)
        assert shown.endswith((*names, "more") if names else "sums of inputs") and name not in shown


@pytest.mark.parametrize("name", ["relu", "add", "matmul", "softmax"])
def test_another_op_is_its_own_step(name: str) -> None:
    node, _ = node_of(name, 0, "f32")
    assert steps_of(node) == [node]
    assert is_elementwise(node.op) == isinstance(node.op, Pointwise)
