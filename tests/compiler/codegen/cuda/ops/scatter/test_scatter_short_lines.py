"""The last of equal indices of many short lines, as of ``maxunpool``: a warp reads a line, as compiled."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_elements import LineScatter
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


def node_of(lines: int, length: int, count: int, dtype: DType = DType.F32) -> Node:
    given = value(dtype, (lines, length)), value(DType.I32, (lines, length))
    return Builder(name="here").node(OPS["scatter_last"], *given, axis=1, count=count)


def kinds(node: Node) -> list[type]:
    return [type(launch.spec) for launch in lower(node) or []]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize("wrong", [None, -1, 84])
def test_both_ways_have_the_same_bits(dtype: DType, wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    src, ids = simulator.held(rng.normal(size=(5, 21)), dtype), rng.integers(0, 84, (5, 21), np.int32)
    if wrong is not None:
        ids[2, 7] = wrong
    node = node_of(5, 21, 84, dtype)
    assert kinds(node) == [Region]
    [scanned] = on_machine(node, [src, ids])
    monkeypatch.setattr(scatter, "_MANY_LOOKS", 0)
    monkeypatch.setattr(scatter, "_MANY_LINES", 1)
    assert kinds(node) == [LineScatter]
    np.testing.assert_array_equal(on_machine(node, [src, ids])[0], scanned)


def test_many_lines_are_not_scanned() -> None:
    """By each of their results."""
    assert kinds(node_of(3120, 21, 84)) == [LineScatter]
    assert kinds(node_of(100, 21, 84)) == kinds(node_of(600, 4, 9)) == [Region]
