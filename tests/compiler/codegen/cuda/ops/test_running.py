"""Running sums and products along long axes, as compiled: one block and several, all layouts; against f64."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops import running
from dslc.compiler.codegen.cuda.ops.running import Running
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

#: shape, axis, dtype, launches with blocks of 64 threads and 2 elements each
CASES = [
    ((2, 300, 3), 1, DType.F32, 2),
    ((400,), 0, DType.F32, 2),
    ((100,), 0, DType.F64, 1),
    ((130, 8), 0, DType.I32, 2),
    ((66, 40), 0, DType.BF16, 2),
    ((3, 300), 1, DType.B1, 2),
]


def node_of(shape: tuple[int, ...], axis: int, dtype: DType, op: str = "cumsum", reverse: bool = False) -> Node:
    return Builder(name="here").node(OPS[op], value(dtype, shape), axis=axis, reverse=reverse)


def drawn(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(0)
    if not dtype.is_float:
        return rng.integers(0, 2, shape).astype(bool) if dtype is DType.B1 else rng.integers(-3, 4, shape, np.int32)
    x = rng.uniform(0.9, 1.1, shape) * rng.choice([-1, 1], shape)
    return x if dtype is DType.F64 else simulator.held(x, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@pytest.mark.parametrize(("shape", "axis", "dtype", "launches"), CASES)
def test_lines_are_exact(
    shape: tuple[int, ...],
    axis: int,
    dtype: DType,
    launches: int,
    op: str,
    reverse: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, number in (("_THREADS", 64), ("_EACH", 2), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)
    node, x = node_of(shape, axis, dtype, op, reverse), drawn(shape, dtype)
    assert len(lower(node) or []) == launches
    [got] = on_machine(node, [x])
    wide = x.astype(np.float64 if dtype.is_float else np.int64)
    turned = np.flip(wide, axis) if reverse else wide
    wanted = np.cumsum(turned, axis) if op == "cumsum" else np.cumprod(turned, axis)
    tolerance = {DType.BF16: 2**-7, DType.F32: 3e-5, DType.F64: 1e-12}.get(dtype, 0)
    wanted = np.flip(wanted, axis) if reverse else wanted
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "reverse"), [((2, 150, 3), 1, False), ((300,), 0, True), ((130, 8), 0, True)]
)
def test_recurrences(
    shape: tuple[int, ...], axis: int, reverse: bool, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the factors of a chunk overflow together, after elements of 0."""
    for name, number in (("_THREADS", 64), ("_EACH", 2), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)
    given = value(DType.F32, shape), value(DType.F32, shape)
    attrs = {"axis": axis, "reverse": reverse, "late": late}
    node = Builder(name="here").node(OPS["recurrence"], *given, **attrs)
    assert len(lower(node) or []) == 2
    rng = np.random.default_rng(0)
    xs = [rng.uniform(-1.1, 1.1, shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)]
    [wanted] = OPS["recurrence"].meaning([x.astype(np.float64) for x in xs], attrs)
    np.testing.assert_allclose(on_machine(node, xs)[0], wanted, rtol=1e-5, atol=1e-5)
    xs = [np.full(shape, 9, np.float32), np.zeros(shape, np.float32)]
    np.testing.assert_array_equal(on_machine(node, xs)[0], xs[1])


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "over"), [((300,), (0,)), ((2, 15, 10, 3), (1, 2)), ((130, 8), (0,))])
def test_the_product_of_all_others(
    shape: tuple[int, ...], over: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a zero, and in lines with two."""
    for name, number in (("_THREADS", 64), ("_EACH", 2), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)
    kept = tuple(1 if axis in over else size for axis, size in enumerate(shape))
    node = Builder(name="here").node(OPS["prod_grad"], value(DType.F32, shape), value(DType.F32, kept), over=over)
    assert len(lower(node) or []) == 5
    rng = np.random.default_rng(0)
    x, dy = rng.uniform(0.9, 1.1, shape).astype(np.float32), rng.normal(size=kept).astype(np.float32)
    x.reshape(-1)[[7, -1]] = 0
    [wanted] = OPS["prod_grad"].meaning([x.astype(np.float64), dy.astype(np.float64)], {"over": over})
    np.testing.assert_allclose(on_machine(node, [x, dy])[0], wanted, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "launches"),
    [((2, 104), 1, DType.BF16, 1), ((600,), 0, DType.BF16, 2), ((3, 88), 1, DType.F16, 1)],
)
def test_neighbours_read_together_have_the_bits_of_those_read_apart(
    shape: tuple[int, ...], axis: int, dtype: DType, launches: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_THREADS", 32), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)
    node, x = node_of(shape, axis, dtype, reverse=reverse), drawn(shape, dtype)
    specs = [launch.spec for launch in lower(node) or []]
    assert [isinstance(spec, Running) and spec.whole for spec in specs] == [True] * launches
    [together] = on_machine(node, [x])
    monkeypatch.setattr(Running, "whole", False)
    [apart] = on_machine(node, [x])
    np.testing.assert_array_equal(together, apart)
    assert together.any()


def test_odd_lines_wide_elements_and_columns_are_read_apart() -> None:
    nodes = node_of((3, 4099), 1, DType.BF16), node_of((8192, 8), 0, DType.BF16), node_of((3, 4096), 1, DType.F32)
    specs = [launch.spec for node in nodes for launch in lower(node) or []]
    assert specs
    assert not any(isinstance(spec, Running) and spec.whole for spec in specs)


@pytest.mark.slow
def test_the_bits_do_not_depend_on_which_block_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_THREADS", 64)
    node, x = node_of((150, 6), 0, DType.F32), drawn((150, 6), DType.F32)
    np.testing.assert_array_equal(on_machine(node, [x], backwards=True)[0], on_machine(node, [x])[0])


@pytest.mark.parametrize(
    ("shape", "axis", "chunks"),
    [
        ((8192, 8), 0, 32),  # of each 256 elements of 8 columns
        ((1 << 20,), 0, 512),
        ((8, 100_000, 4), 1, 66),
        ((1000, 4096), 1, 1),
        ((1024, 63), 1, None),  # a warp walks along a row
        ((4, 1 << 16), 0, None),  # a thread for each column
    ],
)
def test_no_long_axis_is_walked_along_by_few_threads(shape: tuple[int, ...], axis: int, chunks: int | None) -> None:
    specs = [launch.spec for launch in lower(node_of(shape, axis, DType.F32)) or []]
    found = [spec.chunks for spec in specs if isinstance(spec, Running)]
    assert found == ([] if chunks is None else [chunks] * (1 + (chunks > 1)))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axis", "launches"), [((400,), 0, 2), ((66, 40), 0, 2), ((2, 100), 1, 1)])
def test_casts_before_and_after_lines_need_no_kernel(
    shape: tuple[int, ...], axis: int, launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_THREADS", 64), ("_EACH", 2), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)
    wide, attrs = (("dtype", DType.F32),), (("axis", axis), ("reverse", False))
    body = (("cast", (0,), wide), ("cumsum", (1,), attrs), ("cast", (2,), (("dtype", DType.BF16),)))
    node = Builder(name="here").node(OPS["fused_rows"], value(DType.BF16, shape), body=body)
    assert [type(launch.spec) for launch in lower(node) or []] == [Running] * launches
    x = drawn(shape, DType.BF16)
    [got] = on_machine(node, [x])
    [sums] = on_machine(node_of(shape, axis, DType.F32), [x])
    assert got.tobytes() == simulator.held(sums, DType.BF16).tobytes()
    scaled = (("mul", (0, 0), ()), ("cumsum", (1,), attrs))
    assert lower(Builder(name="here").node(OPS["fused_rows"], value(DType.F32, shape), body=scaled)) is None
    twice = (("mul", (0, 0), ()), ("cast", (1,), wide), ("cumsum", (2,), attrs))
    assert lower(Builder(name="here").node(OPS["fused_rows"], value(DType.BF16, shape), body=twice)) is None
