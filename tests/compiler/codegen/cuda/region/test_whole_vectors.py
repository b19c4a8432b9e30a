"""Long pointwise regions whose length no vector divides: whole vectors, then the few elements after them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.ptx_comparison import compared
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.compile import geometry
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import whole_vectors
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


def node(dtype: DType, *shapes: tuple[int, ...]) -> Node:
    """x0 * x1 + x2 and so on, of tensors."""
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate(shapes)]
    body = [("mul", (0, 1), ()), *(("add", (len(shapes) + i, 2 + i), ()) for i in range(len(shapes) - 2))]
    return Builder(name="here").node(OPS["fused"], *values, body=tuple(body))


def launches(made: Node) -> list[Launch]:
    found = lower(made)
    assert found is not None
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short regions are cut, too."""
    monkeypatch.setattr(whole_vectors, "_LEAST", 16)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("shape", "dtype"), [((17, 31), DType.BF16), ((17, 31), DType.F32), ((1031,), DType.F16), ((3, 5, 7, 9), DType.F64)]
)
def test_both_parts_give_each_element_once(shape: tuple[int, ...], dtype: DType) -> None:
    rng = np.random.default_rng(math.prod(shape))
    xs = [simulator.held(rng.normal(size=s), dtype) for s in (shape, shape, ())]
    made = node(dtype, *(x.shape for x in xs))
    parts = launches(made)
    assert len(parts) == 2 and geometry(parts[1].spec).grid[0] == 1
    whole = max(v for v in (2, 4, 8) if f"_{v}(" in source_of("k", parts[0].code).text)
    assert math.prod(shape) % whole
    found = simulated(made, xs)
    assert found is not None
    np.testing.assert_array_equal(found[0], simulator.held(simulator.held(xs[0] * xs[1], dtype) + xs[2], dtype))
    compared(made, xs, threads=256)


@pytest.mark.usefixtures("short")
def test_what_stays_in_one_launch() -> None:
    for shapes in (
        [(16, 32), (16, 32)],  # vectors divide it
        [(17, 31), (31,)],  # rows have their own places
        [(17, 31), (17, 1)],
        [(3, 5), (3, 5)],  # short
    ):
        assert len(launches(node(DType.BF16, *shapes))) == 1, shapes
    x = Input("x", Kind.DATA, TensorType(DType.BF16, (17, 31))).value
    turned = Builder(name="here").node(OPS["transpose"], x, perm=(1, 0))
    assert len(launches(turned)) == 1


def test_only_long_regions_are_cut_and_others_have_the_rests_code() -> None:
    assert len(launches(node(DType.BF16, (255, 255), (255, 255)))) == 1
    parts = [launches(node(DType.BF16, s, s)) for s in ((2049, 2051), (1_111_111,))]
    assert [len(each) for each in parts] == [2, 2]
    assert parts[0][1].symbol == parts[1][1].symbol
