"""Scatters of elements with an index each, as compiled: by lines and by bins, against numpy; blocks in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import row_order, scatter_elements
from dslc.compiler.codegen.cuda.ops.scatter.scatter_block import BlockScatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_elements import BinScatter, Elements, LineScatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import RowsFew
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index import ordered

pytestmark = pytest.mark.slow
LENGTH, COUNT = 70, 150
RNG = np.random.default_rng(7)
IDS = {
    "one": np.full(LENGTH, 3),
    "different": RNG.permutation(COUNT)[:LENGTH],
    "mixed": np.where(RNG.random(LENGTH) < 0.5, RNG.integers(0, COUNT, LENGTH), 149),
}
HOW: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.fixture(params=["lines", "bins", "parts"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Warps of 64 keys that read a line; blocks of two warps that sort by bins of 128 keys, whose elements one block
    combines, or several."""
    by_lines = request.param == "lines"
    monkeypatch.setattr(ordered, "BIN_BYTES", 512)
    monkeypatch.setattr(scatter_elements, "BIN_BYTES", 256)
    monkeypatch.setattr(ordered, "_SHORT", 1 << 20 if by_lines else 0)
    monkeypatch.setattr(ordered, "_MANY_WARPS", 1 << 30)
    monkeypatch.setattr(ordered, "_LEAST_BIN", 128)
    monkeypatch.setattr(ordered, "_MAX_SCANNED", 0)
    monkeypatch.setattr(scatter_elements, "_PART", 16 if request.param == "parts" else 1 << 14)
    monkeypatch.setattr(scatter_elements, "_AHEAD", 2)
    monkeypatch.setattr(scatter_elements, "atomic_scatter", lambda *_: None)  # test_scatter_atomic.py has tests of it
    monkeypatch.setattr(scatter_elements, "MANY_ELEMENTS", 0)
    monkeypatch.setattr(row_order, "_BLOCK_THREADS", 64)
    monkeypatch.setattr(row_order, "_MOST_KEYS", 1)
    return str(request.param)


def case(ids: np.ndarray, how: str, dtype: DType = DType.F32) -> tuple[Node, list[np.ndarray]]:
    """Two lines, of which the second has the ids backwards."""
    index, rng = np.stack([ids, ids[::-1]]).astype(np.int32), np.random.default_rng(1)
    drawn = [rng.uniform(0.8, 1.25, (2, size)) * rng.choice([-1, 1], (2, size)) for size in (COUNT, LENGTH)]
    x, src = [(d * 9).astype(np.int32) if dtype.is_int else simulator.held(d, dtype) for d in drawn]
    at, b = value(DType.I32, index.shape), Builder(name="here")
    target, source = value(dtype, x.shape), value(dtype, src.shape)
    match how:
        case "sum":
            return b.node(OPS["scatter_add"], source, at, axis=1, count=COUNT), [src, index]
        case "last":
            return b.node(OPS["scatter_last"], source, at, target, axis=1, count=COUNT), [src, index, x]
        case "last of none":
            return b.node(OPS["scatter_last"], source, at, axis=1, count=COUNT), [src, index]
        case "places":
            return b.node(OPS["last_places"], at, axis=1, count=COUNT, lost=LENGTH), [index]
    return b.node(OPS["scatter_reduce"], target, source, at, axis=1, how=how), [x, src, index]


def combined(xs: list[np.ndarray], how: str) -> np.ndarray:
    *x, src, index = xs
    wanted = x[0].astype(np.float64) if x else np.zeros((2, COUNT))
    for line in range(2):
        HOW[how].at(wanted[line], index[line], src[line].astype(np.float64))
    return wanted


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("sum", DType.F32), ("sum", DType.BF16), ("sum", DType.I32), ("prod", DType.F32), ("max", DType.F32),
     ("min", DType.I32)],
)  # fmt: skip
@pytest.mark.parametrize("name", IDS)
def test_combinations(name: str, how: str, dtype: DType) -> None:
    node, xs = case(IDS[name], how, dtype)
    [got] = on_machine(node, xs)
    tolerance: dict[str, Any] = {"rtol": 2**-8, "atol": 1e-6} if dtype is DType.BF16 else {"rtol": 5e-6, "atol": 2e-6}
    np.testing.assert_allclose(got, combined(xs, how), **tolerance)


@pytest.mark.parametrize("how", ["last", "last of none", "places"])
@pytest.mark.parametrize("name", IDS)
def test_the_last_of_equal_indices_wins(name: str, how: str) -> None:
    for dtype in (DType.F32, DType.BF16, DType.I64, DType.B1) if how == "last" else (DType.F32,):
        node, xs = case(IDS[name], how, DType.I32 if dtype in (DType.I64, DType.B1) else dtype)
        if dtype in (DType.I64, DType.B1):
            xs = [(x > 0) if dtype is DType.B1 else x.astype(np.int64) for x in (xs[0], xs[2])]
            index = np.stack([IDS[name], IDS[name][::-1]]).astype(np.int32)
            given = [value(dtype, xs[0].shape), value(DType.I32, index.shape), value(dtype, xs[1].shape)]
            node = Builder(name="here").node(OPS["scatter_last"], *given, axis=1, count=COUNT)
            xs = [xs[0], index, xs[1]]
        np.testing.assert_array_equal(on_machine(node, xs)[0], node.op.meaning(xs, node.attrs)[0])


@pytest.mark.parametrize("wrong", [-1, COUNT])
@pytest.mark.parametrize("how", ["sum", "max", "last", "places"])
def test_an_unknown_id_spoils_its_line_alone(how: str, wrong: int) -> None:
    for line in range(2):
        node, xs = case(IDS["mixed"], how)
        index = next(x for x in xs if x.dtype == np.int32)
        index[line, 5] = wrong
        [got] = on_machine(node, xs)
        if how == "places":
            assert (got[line] == LENGTH).all() and (got[1 - line] < LENGTH).all()
        else:
            assert np.isnan(got[line]).all() and np.isfinite(got[1 - line]).all()


def test_integers_leave_unknown_ids_out() -> None:
    node, xs = case(IDS["mixed"], "sum", DType.I32)
    xs[1][0, 5], xs[0][0, 5] = 3, 0
    wanted = combined(xs, "sum")
    xs[1][0, 5], xs[0][0, 5] = -1, 99
    np.testing.assert_array_equal(on_machine(node, xs)[0], wanted)


@pytest.mark.parametrize("name", IDS)
def test_the_bits_do_not_depend_on_which_block_is_first(name: str) -> None:
    node, xs = case(IDS[name], "sum")
    np.testing.assert_array_equal(on_machine(node, xs, backwards=True)[0], on_machine(node, xs)[0])


def test_the_kernels_of_each_way(way: str) -> None:
    found = [type(launch.spec) for launch in lower(case(IDS["one"], "sum")[0]) or []]
    assert found.count(BlockScatter) == (way == "lines")
    assert found.count(BinScatter) == {"lines": 0, "bins": 2, "parts": 3}[way]


def test_few_elements_are_combined_in_one_launch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rows are; but the last of equal indices has no other kernel."""
    monkeypatch.setattr(scatter_elements, "MANY_ELEMENTS", LENGTH)
    found = [type(launch.spec) for launch in lower(case(IDS["one"], "sum")[0]) or []]
    assert found == [BlockScatter if way == "lines" else RowsFew]
    if way == "lines":
        assert [type(launch.spec) for launch in lower(case(IDS["one"], "max")[0]) or []] == [LineScatter]
    assert lower(case(IDS["one"], "last")[0])


@pytest.mark.parametrize("count", [1, 31, 33, 150, 5000, 32768])
def test_warps_cover_the_keys_of_a_line(count: int) -> None:
    spec = LineScatter(Elements(DType.F32, DType.I32, "sum", 3, 10, count, False, None))
    splits = -(-count // spec.held)
    assert spec.geometry.grid[0] * spec.warps >= 3 * splits and spec.held * spec.warps * 4 <= 48 << 10
