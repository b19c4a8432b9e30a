"""Rows added to a table, as compiled: ids with one row, with many, unknown ones; against f64, blocks in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops import scatter_rows
from dslc.compiler.codegen.cuda.ops.scatter_rows import Scattered, ScatterJoin, ScatterOrder, part_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(7)
IDS = {
    "one": np.full(100, 3),
    "two": np.where(np.arange(100) % 3 == 1, 4, 0),
    "zipf": np.minimum(RNG.zipf(1.5, 100) - 1, 9),
    "runs": np.repeat(np.arange(10), [64, 1, 17, 16, 0, 15, 33, 2, 1, 1]),
    "different": RNG.permutation(80),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 16 rows, windows of 64, blocks of one warp: few threads show all cases."""
    monkeypatch.setattr(scatter_rows, "_BLOCK_THREADS", 32)
    monkeypatch.setattr(scatter_rows, "_PART_RANGE", (16, 16))
    monkeypatch.setattr(scatter_rows, "_ORDER_WORDS", 2)
    monkeypatch.setattr(scatter_rows, "_ORDER_THREADS", 64)


def scattered(ids: np.ndarray, inner: tuple[int, ...], dtype: DType, count: int) -> tuple[Node, list[np.ndarray]]:
    rows = np.random.default_rng(1).normal(size=(*ids.shape, *inner))
    rows = (rows * 100).astype(np.int32) if dtype.is_int else simulator.held(rows, dtype)
    values = [value(dtype, rows.shape), value(DType.I32, ids.shape)]
    return Builder(name="here").node(OPS["scatter_rows_add"], *values, count=count), [rows, ids.astype(np.int32)]


def exact(rows: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    table = np.zeros((count, *rows.shape[1:]))
    np.add.at(table, ids, rows.astype(np.float64))
    return table


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I32])
@pytest.mark.parametrize("name", IDS)
def test_tables_are_exact(name: str, dtype: DType) -> None:
    ids = IDS[name]
    count = int(ids.max()) + 2
    node, xs = scattered(ids, (3,), dtype, count)
    [got] = on_machine(node, xs)
    tolerance: dict[str, Any] = {"rtol": 2**-8, "atol": 1e-6} if dtype is DType.BF16 else {"rtol": 2e-6, "atol": 2e-6}
    np.testing.assert_allclose(got, exact(*xs, count), **tolerance)


@pytest.mark.parametrize("name", ["two", "zipf"])
def test_the_bits_do_not_depend_on_which_block_is_first(name: str) -> None:
    node, xs = scattered(IDS[name], (1,), DType.F32, int(IDS[name].max()) + 1)
    np.testing.assert_array_equal(on_machine(node, xs, backwards=True)[0], on_machine(node, xs)[0])


def test_rows_wider_than_a_block() -> None:
    """Each thread has two columns; the last ones have no thread."""
    node, xs = scattered(IDS["two"][:60], (2, 20), DType.F32, 5)
    [got] = on_machine(node, xs)
    np.testing.assert_allclose(got, exact(*xs, 5), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("wrong", [-1, 10])
def test_an_unknown_id_among_many_rows(wrong: int) -> None:
    ids = IDS["runs"].copy()
    ids[70] = wrong
    node, xs = scattered(ids, (1,), DType.F32, 10)
    assert np.isnan(on_machine(node, xs)[0]).all()
    node, xs = scattered(ids, (1,), DType.I32, 10)
    known = ids != wrong
    np.testing.assert_array_equal(on_machine(node, xs)[0], exact(xs[0][known], ids[known], 10))


def test_a_sum_has_its_order_whatever_ids_are_around() -> None:
    """The bits of an id's sum depend on its rows and the number of all rows alone."""
    node, xs = scattered(np.where(np.arange(150) % 2 == 0, 1, 0), (2,), DType.F32, 4)
    other = xs[1].copy()
    other[1::4] = 3
    np.testing.assert_array_equal(on_machine(node, xs)[0][1], on_machine(node, [xs[0], other])[0][1])


def test_places_are_put_in_order_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 1,056 rows, of which a thread has two words."""
    monkeypatch.setattr(scatter_rows, "_ORDER_THREADS", 32)
    monkeypatch.setattr(scatter_rows, "_ORDER_WORDS", 33)
    spec = ScatterOrder(Scattered(DType.I32, 2500, 2, 16))
    places = np.random.default_rng(2).permutation(2500)[:300]
    before, after = np.zeros(2500 + 7), np.zeros(2500 - 307)  # ranks and places of others
    counts, starts, longs = [0, 300], [0, 7], np.ones(spec.rows.longs)
    order = np.full(2500, -1)
    work = np.concatenate([counts, starts, before, places, after, order, longs, [0, 307, 1]]).astype(np.int32)
    assert work.nbytes == spec.rows.work_bytes
    ptx = compiled(spec.code, "k", "sm_90").ptx.decode("ascii")
    ptx_machine.run(ptx, spec.geometry.grid[0], 32, [work.view(np.uint8)], spec.scalar_args)
    order = work[4 + 5000 : 4 + 7500]
    np.testing.assert_array_equal(order[7:307], np.sort(places))
    assert (order[:7] == -1).all() and (order[307:] == -1).all()


def test_few_rows_need_no_parts() -> None:
    kinds = [type(launch.spec) for launch in lower(scattered(np.zeros(16), (3,), DType.F32, 2)[0]) or []]
    assert len(kinds) == 5 and not {ScatterOrder, ScatterJoin} & {*kinds}
    assert len(lower(scattered(np.zeros(17), (3,), DType.F32, 2)[0]) or []) == 7


def test_there_are_about_as_many_parts_as_rows_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter_rows, "_PART_RANGE", (64, 1024))
    assert [part_of(n) for n in (1, 64, 4097, 12_800, 16_384, 16_385, 1 << 20, 1 << 30)] == [
        64, 64, 128, 128, 128, 256, 1024, 1024,
    ]  # fmt: skip
