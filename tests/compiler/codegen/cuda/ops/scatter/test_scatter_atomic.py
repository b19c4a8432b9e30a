"""Scatters of elements by atomic operations, as compiled: blocks in any order give the same bits; against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter_atomic, scatter_elements
from dslc.compiler.codegen.cuda.ops.scatter.scatter_atomic import AtomicScatter
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index import ordered

pytestmark = pytest.mark.slow
LENGTH, COUNT = 90, 41
RNG = np.random.default_rng(7)
IDS = {
    "one": np.full(LENGTH, 3),
    "mixed": np.where(RNG.random(LENGTH) < 0.5, RNG.integers(0, COUNT, LENGTH), 40),
    "different": RNG.integers(0, COUNT, LENGTH),
}
HOW: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
AXES = {"rows": (2, 1), "columns": (1, 3)}  # lines before the axis, elements after it


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a warp and 64 elements, and no other kernels."""
    monkeypatch.setattr(scatter_atomic, "_THREADS", 32)
    monkeypatch.setattr(scatter_atomic, "_EACH", 2)
    monkeypatch.setattr(scatter_elements, "MANY_ELEMENTS", 0)
    monkeypatch.setattr(ordered, "_SHORT", 0)
    monkeypatch.setattr(ordered, "_MANY_WARPS", 1 << 30)
    monkeypatch.setattr(ordered, "_MAX_SCANNED", 0)


def case(
    ids: np.ndarray, how: str, dtype: DType = DType.F32, axes: str = "rows", spread: int = 9
) -> tuple[Node, list[np.ndarray]]:
    """Each line has the ids turned by one more place. Exponents are up to ``spread`` above or below those of 1."""
    (outer, inner), rng, b = AXES[axes], np.random.default_rng(1), Builder(name="here")
    index = np.stack([np.roll(ids, n) for n in range(outer * inner)]).reshape(outer, inner, LENGTH)
    index = index.transpose(0, 2, 1).astype(np.int32)
    drawn = [rng.normal(size=(outer, size, inner)) * 2.0 ** rng.integers(-spread, spread, (outer, size, inner))
             for size in (COUNT, LENGTH)]  # fmt: skip
    x, src = [d.astype(f"i{dtype.itemsize}") if dtype.is_int else simulator.held(d, dtype)
              if dtype is not DType.F64 else d for d in drawn]  # fmt: skip
    target, source, at = value(dtype, x.shape), value(dtype, src.shape), value(DType.I32, index.shape)
    match how:
        case "sum":
            return b.node(OPS["scatter_add"], source, at, axis=1, count=COUNT), [src, index]
        case "last":
            return b.node(OPS["scatter_last"], source, at, target, axis=1, count=COUNT), [src, index, x]
        case "places":
            return b.node(OPS["last_places"], at, axis=1, count=COUNT, lost=LENGTH), [index]
    return b.node(OPS["scatter_reduce"], target, source, at, axis=1, how=how), [x, src, index]


def combined(xs: list[np.ndarray], how: str) -> np.ndarray:
    *x, src, index = xs
    outer, _, inner = src.shape
    wanted = x[0].astype(np.float64) if x else np.zeros((outer, COUNT, inner))
    for a in range(outer):
        for c in range(inner):
            HOW[how].at(wanted[a, :, c], index[a, :, c], src[a, :, c].astype(np.float64))
    return wanted


def run(node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The result, whose bits do not depend on which block is first."""
    specs = {type(launch.spec) for launch in lower(node) or []}
    assert specs == {AtomicScatter}
    [got] = on_machine(node, xs)
    assert got.tobytes() == on_machine(node, xs, backwards=True)[0].tobytes()
    return np.asarray(got)


@pytest.mark.parametrize(
    ("how", "dtype", "axes"),
    [("sum", DType.F32, "rows"), ("sum", DType.F32, "columns"), ("sum", DType.BF16, "rows"),
     ("sum", DType.I32, "columns"), ("sum", DType.I64, "rows"), ("max", DType.F32, "columns"),
     ("max", DType.BF16, "rows"), ("min", DType.F64, "rows"), ("min", DType.I32, "columns")],
)  # fmt: skip
@pytest.mark.parametrize("name", IDS)
def test_combinations(name: str, how: str, dtype: DType, axes: str) -> None:
    node, xs = case(IDS[name], how, dtype, axes)
    got, wanted = run(node, xs).astype(np.float64), combined(xs, how)
    if how == "sum" and dtype.is_float:
        greatest = np.abs(xs[0]).max()
        tolerance = 2**-8 if dtype is DType.BF16 else 2**-24
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=greatest * LENGTH * 2**-31)
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize("name", IDS)
def test_one_go_and_two_give_the_same_bits(name: str, dtype: DType) -> None:
    """A key of its own with a tiny element makes two goes of one; the other sums stay. All are the exact ones, rounded:
    in f64, whose sums of these have no error."""
    node, xs = case(IDS[name], "sum", dtype, spread=6)
    xs[0][0, ::7] = 0  # which has no exponent
    once = run(node, xs)
    wanted = simulator.held(combined(xs, "sum"), DType.F32)
    np.testing.assert_array_equal(once, simulator.held(wanted, dtype))
    free = next(key for key in range(COUNT) if key not in xs[1][0])
    xs[0][0, 7, 0], xs[1][0, 7, 0] = 2.0**-120, free
    again = run(node, xs)
    kept = np.ones(once.shape, bool)
    kept[0, free] = False
    np.testing.assert_array_equal(again[kept], once[kept])
    assert again[0, free, 0] > 0


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_exponents_far_apart_are_added_in_two_goes(dtype: DType) -> None:
    """Each sum is as exact as one in f32 next to its own greatest element, however great others are."""
    node, xs = case(IDS["different"], "sum", dtype, spread=60)
    got, wanted = run(node, xs).astype(np.float64), combined(xs, "sum")
    sizes = combined([np.abs(xs[0].astype(np.float64)), xs[1]], "sum")
    assert (np.abs(got - wanted) <= sizes * (2**-8 if dtype is DType.BF16 else 2**-23)).all()


@pytest.mark.parametrize("how", ["last", "places"])
@pytest.mark.parametrize("name", IDS)
def test_the_last_of_equal_indices_wins(name: str, how: str) -> None:
    node, xs = case(IDS[name], how)
    np.testing.assert_array_equal(run(node, xs), node.op.meaning(xs, node.attrs)[0])


@pytest.mark.parametrize("wrong", [-1, COUNT])
@pytest.mark.parametrize("how", ["sum", "max", "last", "places"])
def test_an_unknown_id_spoils_its_line_alone(how: str, wrong: int) -> None:
    node, xs = case(IDS["mixed"], how)
    index = next(x for x in xs if x.dtype == np.int32)
    index[1, 5, 0] = wrong
    got = run(node, xs)
    if how == "places":
        assert (got[1] == LENGTH).all() and (got[0] < LENGTH).all()
    else:
        assert np.isnan(got[1]).all() and np.isfinite(got[0]).all()


def test_sums_of_numbers_that_are_none() -> None:
    """Infinite elements of one sign give that, of both, or nan, give nan; very small and very large ones are exact."""
    node, xs = case(np.arange(LENGTH) % COUNT, "sum")
    src = xs[0]
    src[:], src[0, 0], src[0, 1], src[0, 2] = 0, np.inf, -np.inf, np.nan
    src[0, 3], src[0, 3 + COUNT] = np.inf, -np.inf
    src[0, 4], src[0, 4 + COUNT] = 1, np.float32(2.0**-30)
    src[0, 5], src[0, 5 + COUNT] = np.float32(3e38), np.float32(3e38)
    src[0, 6], src[0, 7], src[0, 8] = np.float32(1e-45), np.float32(-3e38), -0.0
    got = run(node, xs)[0, :, 0]
    wanted = [np.inf, -np.inf, np.nan, np.nan, 1, np.inf, np.float32(1e-45), np.float32(-3e38), 0]
    np.testing.assert_array_equal(got[: len(wanted)], np.array(wanted, np.float32))


def test_extremes_of_numbers_that_are_none() -> None:
    for how, least in (("max", -np.inf), ("min", np.inf)):
        node, xs = case(np.arange(LENGTH) % COUNT, how)
        xs[0][:], xs[1][:], xs[1][0, :3, 0] = least, least, (np.nan, -0.0, np.inf)
        xs[1][0, COUNT : COUNT + 3, 0] = (1, 0.0, -np.inf)
        got = run(node, xs)[0, :3, 0]
        wanted = [np.nan, 0.0, np.inf] if how == "max" else [np.nan, -0.0, -np.inf]
        np.testing.assert_array_equal(got, np.array(wanted, np.float32))
        assert np.signbit(got[1]) == (how == "min")


def test_scatters_that_need_an_order_have_other_kernels() -> None:
    for how, dtype in (("sum", DType.F64), ("prod", DType.F32)):
        specs = [launch.spec for launch in lower(case(IDS["one"], how, dtype)[0]) or []]
        assert specs and not any(isinstance(spec, AtomicScatter) for spec in specs)
