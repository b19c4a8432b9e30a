"""Kernels of whole transforms, as compiled, thread by thread: each order of a stage, chirps, pairs of reals, axes that
are not the last, and two kernels one after the other; next to numpy's in f64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.products import fourier_plan
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.ops.products.fourier_plan import Plan, has_small_factors, plan_of
from dslc.compiler.ops.products.staged_fourier import plan_of_node, staged_fourier

RNG = np.random.default_rng(11)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels keep 128 numbers of f32, or 16 for each of 8 lines."""
    monkeypatch.setattr(fourier_plan, "MOST_BYTES", 1024)
    plan_of.cache_clear()
    yield
    plan_of.cache_clear()


def node_of(
    shape: tuple[int, ...], inputs: int, dtype: DType, axis: int = -1, **given: Any
) -> tuple[Node, list[np.ndarray]]:
    """The node with its inputs, of which the last are the roots."""
    axis %= len(shape)
    defaults = {"count": shape[axis], "sign": -1, "parts": "both", "scale": 1.0, "twice": ""}
    attrs = {**defaults, "outputs": given.get("count", shape[axis]), **given, "axis": axis}
    x = [Input("x", Kind.DATA, TensorType(dtype, shape)).value for _ in range(inputs)]
    plan = plan_of_node(Builder().node(fourier, *x, **attrs))
    assert plan is not None
    roots = plan.roots(attrs["sign"])
    table = Input("table", Kind.DATA, TensorType(dtype.computed, roots.shape)).value
    kind = np.float64 if dtype is DType.F64 else np.float32
    arrays = [RNG.uniform(-1, 1, shape).astype(kind) for _ in range(inputs)]
    return Builder().node(staged_fourier, *x, table, **attrs), [*arrays, roots.astype(kind)]


def error(node: Node, xs: list[np.ndarray]) -> float:
    """The largest difference of the kernels' results by the largest result."""
    right = staged_fourier.meaning([x.astype(np.float64) for x in xs], node.attrs)
    apart = [np.abs(own - each).max() for own, each in zip(on_machine(node, xs), right, strict=True)]
    return float(max(apart) / max(np.abs(each).max() for each in right))


def plan(node: Node) -> Plan:
    found = plan_of_node(node)
    assert found is not None
    return found


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("count", range(1, 17))
def test_each_order_of_a_stage(count: int, sign: int) -> None:
    node, xs = node_of((2, count), 2, DType.F64, sign=sign, scale=0.3)
    assert plan(node).orders == ((count,),)
    assert error(node, xs) < 1e-15


#: The number of inputs, their shape, the axis and other attributes -> the orders of stages, and pairs of reals.
CASES: list[tuple[int, tuple[int, ...], int, dict[str, Any], tuple[int, ...], str]] = [
    (2, (3, 60), 1, {}, (10, 6), ""),
    (2, (2, 143, 3), 1, {"sign": 1}, (13, 11), ""),
    (2, (5, 120), 1, {"count": 210, "outputs": 50}, (15, 14), ""),
    (2, (2, 17), 1, {"parts": "both"}, (6, 6), ""),
    (2, (9, 19), 0, {"count": 19}, (9, 3), ""),
    (1, (2, 64), 1, {"outputs": 33}, (8, 4), "given"),
    (1, (3, 34, 2), 1, {}, (6, 6), "given"),
    (1, (2, 43), 1, {"count": 74, "parts": "im", "twice": "results"}, (8, 8), "given"),
    (2, (2, 33), 1, {"count": 64, "sign": 1, "parts": "re", "twice": "given"}, (8, 4), "results"),
    (2, (38, 3), 0, {"sign": 1, "parts": "im"}, (8, 5), "results"),
    (2, (2, 48), 1, {"parts": "re", "outputs": 31, "twice": "results"}, (6, 4), "results"),
]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stages_chirps_and_pairs(case: Any, dtype: DType) -> None:
    inputs, shape, axis, attrs, orders, halved = case
    node, xs = node_of(shape, inputs, dtype, axis, **attrs)
    assert (plan(node).orders, plan(node).halved) == ((orders,), halved)
    assert error(node, xs) < (3e-7 if dtype is DType.F32 else 1e-15)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("attrs", [{}, {"parts": "im", "sign": 1}, {"outputs": 20, "twice": "results"}], ids=str)
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((2, 225), 1, 225), ((2, 35, 3), 1, 35), ((64, 2), 0, 64), ((3, 20, 5), 1, 60)]
)
def test_long_transforms_take_two_kernels(shape: tuple[int, ...], axis: int, count: int, attrs: dict[str, Any]) -> None:
    node, xs = node_of(shape, 2, DType.F32, axis, count=count, **attrs)
    assert len(lower(node) or []) == len(plan(node).orders) == 2
    assert error(node, xs) < 3e-7


@pytest.mark.parametrize("count", [120, 127, 243])
def test_stages_are_as_exact_as_a_product(count: int) -> None:
    """In f32: by stages of small factors, and by a chirp."""
    node, xs = node_of((4, count), 2, DType.F32)
    right = np.fft.fft(xs[0].astype(np.float64) + 1j * xs[1])
    turns = np.exp(-2j * np.pi * (np.outer(np.arange(count), np.arange(count)) % count) / count)
    cosines, sines = turns.real.astype(np.float32), turns.imag.astype(np.float32)
    product = [xs[0] @ cosines - xs[1] @ sines, xs[0] @ sines + xs[1] @ cosines]
    errors = [np.abs(re + 1j * im - right).mean() for re, im in (on_machine(node, xs), product)]
    assert errors[0] < 1.25 * errors[1]  # in what order the product adds, and so its error, depends on the processor


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_halves_are_read_and_rounded_once(dtype: DType) -> None:
    node, xs = node_of((2, 30), 2, dtype)
    assert error(node, [(x * 8).round() / 8 for x in xs[:2]] + xs[2:]) < 2**-8


def test_plans() -> None:
    """Of every count up to 300 and some longer ones: a product of the orders that suffices, and small factors."""
    for count in [*range(1, 300), 1024, 1513, 4096, 8192, 11264, 65536, 1 << 20]:
        for real in ("", "given", "results"):
            found = plan_of(count, count, count, real, 4, False)
            assert found is not None
            assert has_small_factors(found.length) and max(map(max, found.orders)) <= 16
            assert found.length == found.own or found.length >= sum(found.own_sizes) - 1
            assert len(found.orders) == 1 or not found.halved
            wide = 1 if len(found.orders) == 1 else 8
            assert all(wide * 8 * length <= fourier_plan.MOST_BYTES for length in found.lengths)
    assert plan_of(8191, 8191, 8191, "", 4, False) is None
