"""Sums of the elements of long lines in the shared memory of blocks, as compiled: blocks in any order give the same
bits, those of the exact sums if no element is rounded; against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter_block, scatter_elements
from dslc.compiler.codegen.cuda.ops.scatter.scatter_block import BlockScatter
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index import ordered

pytestmark = pytest.mark.slow
COUNT = 150
RNG = np.random.default_rng(7)


def ids_of(name: str, length: int) -> np.ndarray:
    found = {"one": np.full(length, 3), "different": RNG.permutation(COUNT)[:length]}
    return found.get(name, np.where(RNG.random(length) < 0.5, RNG.integers(0, COUNT, length), 149))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two warps and 64 results."""
    monkeypatch.setattr(scatter_block, "_THREADS", 64)
    monkeypatch.setattr(scatter_block, "_HELD", 64)
    monkeypatch.setattr(scatter_block, "_AHEAD", 2)
    monkeypatch.setattr(scatter_elements, "BIN_BYTES", 256)
    monkeypatch.setattr(ordered, "_SHORT", 1 << 20)
    monkeypatch.setattr(ordered, "_MAX_SCANNED", 0)


def case(
    name: str, dtype: DType = DType.F32, length: int = 140, ids: DType = DType.I32, spread: int = 4
) -> tuple[Node, list[np.ndarray]]:
    """Two lines, of which the second has the ids backwards. Exponents differ from that of 1 by up to ``spread``."""
    at, rng = ids_of(name, length), np.random.default_rng(1)
    index = np.stack([at, at[::-1]]).astype(f"i{ids.itemsize}")
    src = simulator.held(rng.normal(size=index.shape) * 2.0 ** rng.integers(-spread, spread, index.shape), dtype)
    source, given = value(dtype, src.shape), value(ids, index.shape)
    return Builder(name="here").node(OPS["scatter_add"], source, given, axis=1, count=COUNT), [src, index]


def combined(xs: list[np.ndarray]) -> np.ndarray:
    src, index = xs
    wanted = np.zeros((2, COUNT))
    for line in range(2):
        np.add.at(wanted[line], index[line], src[line].astype(np.float64))
    return wanted


def run(node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The result, whose bits do not depend on which block is first."""
    [spec] = [launch.spec for launch in lower(node) or []]
    assert isinstance(spec, BlockScatter)
    assert spec.geometry.grid == (6, 1, 1)
    [got] = on_machine(node, xs)
    assert got.tobytes() == on_machine(node, xs, backwards=True)[0].tobytes()
    return np.asarray(got)


@pytest.mark.parametrize(
    ("dtype", "ids", "length"),
    [
        (DType.F32, DType.I32, 140),
        (DType.BF16, DType.I32, 144),
        (DType.F16, DType.I64, 142),
        (DType.BF16, DType.I32, 75),
    ],
)
@pytest.mark.parametrize("name", ["one", "different", "mixed"])
def test_sums_are_exact_ones_rounded(name: str, dtype: DType, ids: DType, length: int) -> None:
    node, xs = case(name, dtype, length, ids)
    exact = simulator.held(combined(xs), DType.F32)  # f64 has no error in these
    np.testing.assert_array_equal(run(node, xs), simulator.held(exact, dtype))


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_one_go_and_two_give_the_same_bits(dtype: DType) -> None:
    node, xs = case("mixed", dtype)
    once = run(node, xs)
    free = next(key for key in range(COUNT) if key not in xs[1][0])
    xs[0][0, 7], xs[1][0, 7] = 0, free
    once = run(node, xs)
    xs[0][0, 7] = 2.0**-120
    again = run(node, xs)
    assert again[0, free] > 0
    again[0, free] = 0
    np.testing.assert_array_equal(again, once)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_exponents_far_apart_are_added_in_two_goes(dtype: DType) -> None:
    """Each sum is as exact as one in f32 next to its own greatest element, however great others are."""
    node, xs = case("mixed", dtype, spread=60)
    got, wanted = run(node, xs).astype(np.float64), combined(xs)
    sizes = combined([np.abs(xs[0].astype(np.float64)), xs[1]])
    assert (np.abs(got - wanted) <= sizes * (2**-8 if dtype is DType.BF16 else 2**-23)).all()


@pytest.mark.parametrize("wrong", [-1, COUNT])
def test_an_unknown_id_spoils_its_line_alone(wrong: int) -> None:
    node, xs = case("mixed")
    xs[1][1, 5] = wrong
    got = run(node, xs)
    assert np.isnan(got[1]).all() and np.isfinite(got[0]).all()


def test_sums_of_numbers_that_are_none() -> None:
    """Infinite elements of one sign give that, of both, or nan, give nan; very small and very large ones are exact."""
    node, xs = case("different")
    src, index = xs
    src[:], index[0] = 0, np.arange(140) % 70
    src[0, :3], src[0, 3], src[0, 73] = (np.inf, -np.inf, np.nan), np.inf, -np.inf
    src[0, 4], src[0, 74], src[0, 5], src[0, 75] = 1, 2.0**-30, 3e38, 3e38
    src[0, 6:9] = 1e-45, -3e38, -0.0
    wanted = [np.inf, -np.inf, np.nan, np.nan, 1, np.inf, np.float32(1e-45), np.float32(-3e38), 0]
    np.testing.assert_array_equal(run(node, xs)[0, : len(wanted)], np.array(wanted, np.float32))
