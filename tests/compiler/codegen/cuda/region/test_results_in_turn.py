"""Results whose elements take turns in memory: threads next to each other write elements next to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.region.one_hot import nll_grad
from dslc.compiler.codegen.region.pointwise import pad, pointwise
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

F32, I32 = DType.F32, DType.I32
BODY: Any = (("exp", (0,), ()), ("neg", (0,), ()))


def node_of(axis: int, shape: tuple[int, ...] = (64, 32, 64)) -> Node:
    x = Input("x", Kind.DATA, TensorType(DType.BF16, shape)).value
    return Builder(name="parts").node(OPS["fused_stack"], x, body=BODY, results=(1, 2), axis=axis)


@pytest.mark.parametrize(("axis", "vector"), [(3, 1), (2, 8), (0, 8)])
def test_vectors_of_parts(axis: int, vector: int) -> None:
    [launch] = pointwise(node_of(axis))
    found = schedule(launch.spec)
    assert isinstance(found, Flat) and found.vector == vector


def test_a_pad_between_elements() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.BF16, (64, 1024))).value
    ends = {"low": (0, 0), "high": (0, 1), "interior": (0, 1), "value": 0.0}
    *_, copied = pad(Builder(name="pad").node(OPS["pad"], x, **ends))
    found = schedule(copied.spec)
    assert isinstance(found, Flat) and found.vector == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("ignored", [{}, {"ignore_index": 2}])
def test_a_gradient_of_nll_is_written_in_the_order_of_memory(axis: int, ignored: dict[str, int]) -> None:
    """Whatever the axis of the classes is, vectors are whole."""
    shape = (6, 5, 16)
    rest = (*shape[:axis], *shape[axis + 1 :])
    ids = np.random.default_rng(axis).integers(-1, shape[axis] + 1, rest).astype(np.int32)
    dy = np.random.default_rng(1).normal(size=rest).astype(np.float32)
    values = [Input(name, Kind.DATA, TensorType(dtype, rest)).value for name, dtype in (("i", I32), ("dy", F32))]
    made = Builder(name="here").node(OPS["nll_grad"], *values, axis=axis, classes=shape[axis], **ignored)
    [launch] = nll_grad(made)
    found = schedule(launch.spec)
    assert isinstance(found, Flat) and found.vector == 4
    assert launch.spec.outputs[0].strides[-1] == 1
    got = simulated(made, [ids, dy])
    assert got is not None
    np.testing.assert_array_equal(got[0], made.op.meaning([ids, dy], made.attrs)[0])
