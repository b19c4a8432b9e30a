"""Results whose elements take turns in memory: threads next to each other write elements next to each other."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.region.pointwise import pad, pointwise
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

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
