"""Elements whose columns have values of their own: threads with two vectors, and the sums' last chunk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.ptx_comparison import compared
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated
from thinning import thinned

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import schedule
from dslc.compiler.codegen.cuda.region.kernel import SizeGenericRegion
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One block is enough."""
    monkeypatch.setattr(schedule, "_MANY_BLOCKS", 0)
    schedule.schedule.cache_clear()
    yield
    schedule.schedule.cache_clear()


def node(dtype: DType, *shapes: tuple[int, ...]) -> Node:
    """The product of the first two, and the others added to it."""
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate(shapes)]
    body = [("mul", (0, 1), ()), *(("add", (len(shapes) + i, 2 + i), ()) for i in range(len(shapes) - 2))]
    return Builder(name="here").node(OPS["fused"], *values, body=tuple(body))


def held(made: Node) -> int:
    [launch] = lower(made) or []
    assert isinstance(launch.spec, SizeGenericRegion)
    cut = schedule.schedule(launch.spec.region)
    assert isinstance(cut, Flat)
    return cut.held


@pytest.mark.parametrize("line", [1, 2])
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
def test_lines_shorter_than_a_vector_are_read_element_by_element(line: int, dtype: DType) -> None:
    """A vector of such a tensor is in several rows, so it is not the same for the second vector."""
    rng = np.random.default_rng(line)
    xs = [simulator.held(rng.normal(size=s), dtype) for s in ((600, line), (line,), (line,))]
    made = node(dtype, *(x.shape for x in xs))
    assert held(made) == 1
    compared(made, xs, threads=256)


@pytest.mark.parametrize(("rows", "dtype"), thinned(product((64, 300, 301), (DType.F32, DType.BF16)), 5), ids=str)
def test_a_thread_has_two_vectors(rows: int, dtype: DType) -> None:
    """Whole blocks, parts of the last one, half of a thread's vectors."""
    rng = np.random.default_rng(rows)
    xs = [simulator.held(rng.normal(size=s), dtype) for s in ((rows, 64), (64,), (64,))]
    made = node(dtype, *(x.shape for x in xs))
    assert held(made) == 2
    found = simulated(made, xs)
    assert found is not None
    np.testing.assert_array_equal(found[0], simulator.held(simulator.held(xs[0] * xs[1], dtype) + xs[2], dtype))
    compared(made, xs, threads=256)


def test_when_it_has_one() -> None:
    for shapes in (
        [(64, 60), (60,), (60,)],  # the block's elements are no whole rows
        [(64, 64), (64, 1), (64,)],  # values of rows
        [(64, 64), (64, 64)],  # no columns
        [(64, 64), (64,)],  # no more of them than of elements
        [(4, 64, 64), (64, 64), (64, 64)],
    ):
        assert held(node(DType.BF16, *shapes)) == 1, shapes


def test_it_loads_columns_once() -> None:
    [launch] = lower(node(DType.BF16, (64, 64), (64,), (64,))) or []
    text = source_of("k", launch.code).text
    assert text.count("load_bf16_8(") == 3 and text.count("tile_2_8(") == 2


def test_all_chunks_but_the_last_ask_for_nothing() -> None:
    values = [Input("x", Kind.DATA, TensorType(DType.F32, (1000, 128))).value]
    launches = lower(Builder(name="here").node(OPS["sum"], *values, over=(0,), keep=False)) or []
    loop, rest = source_of("k", launches[0].code).text.split("for ")[1].split("\n    t", 1)
    assert "load_f32" in loop and "load_if_f32" not in loop and "load_if_f32" in rest
