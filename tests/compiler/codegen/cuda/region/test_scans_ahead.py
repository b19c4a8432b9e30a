"""Running sums and products along short rows and along outer axes: threads load several steps at once, as compiled."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.kernel import RegionKernel
from dslc.compiler.codegen.cuda.region.reduction import reduction
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


def node_of(shape: tuple[int, ...], axis: int, dtype: DType, op: str = "cumsum", reverse: bool = False) -> Node:
    return Builder(name="here").node(OPS[op], value(dtype, shape), axis=axis, reverse=reverse)


def region_of(node: Node) -> Region:
    [launch] = lower(node) or []
    assert isinstance(launch.spec, Region)
    return launch.spec


def accesses(node: Node) -> list[str]:
    """``load`` and ``store`` in the order of the kernel's text."""
    lines = RegionKernel(region_of(node)).source("k").text.splitlines()
    return [kind for line in lines for kind in ("load", "store") if f"{kind}_" in line]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "op", "dtype"),
    [
        ((7, 33, 3), 0, "cumprod", DType.F32),
        ((2, 37, 5), 1, "cumsum", DType.F32),
        ((2, 33, 8), 1, "cumsum", DType.F64),
        ((3, 517), 1, "cumsum", DType.F32),
        ((2, 640), 1, "cumprod", DType.F32),
        ((40, 6), 0, "cumsum", DType.I32),
    ],
)
def test_bits_do_not_depend_on_how_many_steps_are_loaded_at_once(
    shape: tuple[int, ...], axis: int, op: str, dtype: DType, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, rng = node_of(shape, axis, dtype, op, reverse), np.random.default_rng(0)
    x = rng.integers(-9, 9, shape, np.int32) if dtype is DType.I32 else rng.uniform(0.9, 1.1, shape)
    x = x if dtype is not DType.F32 else simulator.held(x, dtype)
    [ahead] = on_machine(node, [x])
    monkeypatch.setattr(reduction, "_AHEAD", 1)
    [alone] = on_machine(node, [x])
    np.testing.assert_array_equal(ahead, alone)
    turned = np.flip(x, axis) if reverse else x
    wanted = OPS[op].meaning([turned.astype(np.float64)], {"axis": axis, "reverse": False})[0]
    np.testing.assert_allclose(ahead, np.flip(wanted, axis) if reverse else wanted, rtol=1e-4, atol=1e-4)


def test_loads_of_several_steps_precede_their_stores() -> None:
    few = node_of((7, 4097, 65), 0, DType.F32, "cumprod")
    assert accesses(few) == ["load"] * 7 + ["store"] * 7
    many = node_of((41, 4097, 65), 0, DType.F32)  # two turns of a loop of 16, then 9
    assert accesses(many) == ["load"] * 16 + ["store"] * 16 + ["load"] * 9 + ["store"] * 9
    rows = node_of((8192, 512), 1, DType.F32)  # four vectors of four
    assert accesses(rows) == ["load"] * 4 + ["store"] * 4


def test_many_lines_have_large_blocks_and_few_have_short_vectors() -> None:
    found = [schedule(region_of(node_of(shape, 0, DType.F32))) for shape in ((7, 266_305), (9, 1 << 20), (9, 1 << 16))]
    assert [isinstance(each, Columns) and (each.vector, each.width) for each in found] == [(1, 128), (4, 128), (1, 64)]
