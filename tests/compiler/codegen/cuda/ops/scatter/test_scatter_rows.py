"""Rows scattered to tables, as compiled: ids with one row, many, unknown ones; against f64, blocks in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import row_order, scatter, scatter_rows
from dslc.compiler.codegen.cuda.ops.scatter.row_order import Digits, RowDigits, RowStarts
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import OrderedRows, Rows, RowsFew, RowsJoin, part_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(7)
IDS = {
    "one": np.full(70, 3),
    "two": np.where(np.arange(70) % 3 == 1, 4, 0),
    "zipf": np.minimum(RNG.zipf(1.5, 70) - 1, 9),
    "runs": np.repeat(np.arange(10), [34, 1, 17, 16, 0, 2, 1, 2, 1, 1]),
    "different": RNG.permutation(70),
}
HOW: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two warps with 8 ids, 16 rows of an id at once, digits of 2 bits: few threads show all cases."""
    monkeypatch.setattr(scatter_rows, "_FEW_THREADS", 64)
    monkeypatch.setattr(scatter_rows, "_BLOCK_THREADS", 32)
    monkeypatch.setattr(scatter_rows, "_FEW_IDS", (8, 8))
    monkeypatch.setattr(scatter_rows, "_LONG", 16)
    monkeypatch.setattr(scatter_rows, "_PART_RANGE", (16, 16))
    monkeypatch.setattr(scatter, "_MAX_SCANNED", 0)
    monkeypatch.setattr(row_order, "_BLOCK_THREADS", 64)
    monkeypatch.setattr(row_order, "_MOST_KEYS", 1)
    monkeypatch.setattr(row_order, "_DIGIT_BITS", 2)


@pytest.fixture(params=["few", "many"])
def amount(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the rows count as few, or are put in order first."""
    most = 100 if request.param == "few" else 0
    monkeypatch.setattr(scatter_rows, "is_for_order", lambda length, count: length > most)
    return str(request.param)


def scattered(ids: np.ndarray, inner: tuple[int, ...], dtype: DType, count: int) -> tuple[Node, list[np.ndarray]]:
    rows = np.random.default_rng(1).normal(size=(*ids.shape, *inner))
    rows = (rows * 100).astype(np.int32) if dtype.is_int else simulator.held(rows, dtype)
    values = [value(dtype, rows.shape), value(DType.I32, ids.shape)]
    return Builder(name="here").node(OPS["scatter_rows_add"], *values, count=count), [rows, ids.astype(np.int32)]


def along(ids: np.ndarray, how: str, count: int, inner: int, dtype: DType) -> tuple[Node, list[np.ndarray]]:
    """Two parts, of which the second has the ids backwards."""
    index, rng = np.stack([ids, ids[::-1]]).astype(np.int32), np.random.default_rng(1)
    shapes = [(2, count, inner), (2, len(ids), inner)]
    drawn = [rng.uniform(0.8, 1.25, shape) * rng.choice([-1, 1], shape) for shape in shapes]
    xs = [(x * 9).astype(np.int32) if dtype.is_int else x.astype(np.float32) for x in drawn]
    given = [*(value(dtype, x.shape) for x in xs), value(DType.I32, index.shape)]
    b = Builder(name="here")
    if how == "sum":
        return b.node(OPS["scatter_add"], *given[1:], axis=1, count=count), [xs[1], index]
    return b.node(OPS["scatter_reduce"], *given, axis=1, how=how), [*xs, index]


def exact(rows: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    table = np.zeros((count, *rows.shape[1:]))
    np.add.at(table, ids, rows.astype(np.float64))
    return table


@pytest.mark.parametrize(("dtype", "inner"), [(DType.F32, (3,)), (DType.BF16, (16,)), (DType.I32, ())])
@pytest.mark.parametrize("name", IDS)
@pytest.mark.usefixtures("amount")
def test_tables_are_exact(name: str, dtype: DType, inner: tuple[int, ...]) -> None:
    count = int(IDS[name].max()) + 2
    node, xs = scattered(IDS[name], inner, dtype, count)
    [got] = on_machine(node, xs)
    tolerance: dict[str, Any] = {"rtol": 2**-8, "atol": 1e-6} if dtype is DType.BF16 else {"rtol": 2e-6, "atol": 2e-6}
    np.testing.assert_allclose(got, exact(*xs, count), **tolerance)


@pytest.mark.parametrize(
    ("how", "dtype"), [("sum", DType.F32), ("prod", DType.F32), ("max", DType.F32), ("min", DType.I32)]
)
@pytest.mark.parametrize("name", ["zipf", "runs"])
@pytest.mark.usefixtures("amount")
def test_parts_are_combined_apart(name: str, how: str, dtype: DType) -> None:
    node, xs = along(IDS[name], how, 11, 4, dtype)
    *x, src, index = xs
    wanted = x[0].astype(np.float64) if x else np.zeros((2, 11, 4))
    for part in range(2):
        HOW[how].at(wanted[part], index[part], src[part].astype(np.float64))
    np.testing.assert_allclose(on_machine(node, xs)[0], wanted, rtol=5e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["two", "zipf"])
@pytest.mark.usefixtures("amount")
def test_the_bits_do_not_depend_on_which_block_is_first(name: str) -> None:
    node, xs = scattered(IDS[name], (1,), DType.F32, int(IDS[name].max()) + 1)
    np.testing.assert_array_equal(on_machine(node, xs, backwards=True)[0], on_machine(node, xs)[0])


@pytest.mark.usefixtures("amount")
def test_rows_wider_than_a_team() -> None:
    """A thread has two vectors of a row in one launch, and a team of its own for each in the other; some have none."""
    node, xs = scattered(IDS["two"][:40], (2, 33), DType.F64, 5)
    [got] = on_machine(node, xs)
    np.testing.assert_allclose(got, exact(*xs, 5), rtol=2e-12, atol=2e-12)


@pytest.mark.parametrize(("count", "each"), [(37, 1), (300, 8), (301, 8)])
@pytest.mark.parametrize("known", [True, False])
def test_few_rows_of_a_large_table(count: int, each: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team has several keys if most have no rows; one of them has parts. With an unknown id all rows are nan."""
    monkeypatch.setattr(scatter_rows, "is_for_order", lambda length, count: True)
    ids = np.concatenate([np.full(40, 9), RNG.integers(0, count, 20), [count - 1, 8, 10, 0]])
    ids[5] = ids[5] if known else count
    node, xs = scattered(ids, (3,), DType.F32, count)
    [ordered] = (launch.spec for launch in lower(node) or [] if type(launch.spec) is OrderedRows)
    assert ordered.each == each
    [got] = on_machine(node, xs)
    if known:
        np.testing.assert_allclose(got, exact(*xs, count), rtol=2e-6, atol=2e-6)
    else:
        assert np.isnan(got).all()


@pytest.mark.parametrize("wrong", [-1, 10])
@pytest.mark.usefixtures("amount")
def test_an_unknown_id_among_many_rows(wrong: int) -> None:
    ids = IDS["runs"].copy()
    ids[30] = wrong
    node, xs = scattered(ids, (1,), DType.F32, 10)
    assert np.isnan(on_machine(node, xs)[0]).all()
    node, xs = scattered(ids, (1,), DType.I32, 10)
    known = ids != wrong
    np.testing.assert_array_equal(on_machine(node, xs)[0], exact(xs[0][known], ids[known], 10))


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.usefixtures("amount")
def test_an_unknown_id_spoils_its_part_alone(how: str) -> None:
    node, xs = along(IDS["runs"], how, 10, 2, DType.F32)
    xs[-1][1, 5] = 10
    [got] = on_machine(node, xs)
    assert np.isnan(got[1]).all() and np.isfinite(got[0]).all()


@pytest.mark.usefixtures("amount")
def test_a_sum_has_its_order_whatever_ids_are_around() -> None:
    """The bits of an id's sum depend on its rows and the number of all rows alone."""
    node, xs = scattered(np.where(np.arange(90) % 2 == 0, 1, 0), (2,), DType.F32, 4)
    other = xs[1].copy()
    other[1::4] = 3
    np.testing.assert_array_equal(on_machine(node, xs)[0][1], on_machine(node, [xs[0], other])[0][1])


def test_places_are_those_of_a_stable_sort() -> None:
    """Three digits, 150 keys in blocks of 64, of which a warp has several rounds."""
    ids = np.random.default_rng(3).integers(-1, 21, (3, 50)).astype(np.int32)
    node = Builder(name="here").node(OPS["row_order"], value(DType.I32, ids.shape), count=20)
    assert Digits(DType.I32, 3, 50, 20).bits == (2, 2, 2)
    for got, wanted in zip(on_machine(node, [ids]), OPS["row_order"].meaning([ids], {"count": 20})):
        np.testing.assert_array_equal(got, wanted)


def test_rows_read_at_places_that_do_not_exist() -> None:
    places, starts = np.array([2, 7, 0, -1, 1], np.int32), np.array([0, 1, 3, 3, 5], np.int32)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = [value(DType.F32, rows.shape), value(DType.I32, places.shape), value(DType.I32, starts.shape)]
    node = Builder(name="here").node(OPS["ordered_rows"], *given, how="sum", parts=1)
    xs = [rows, places, starts]
    np.testing.assert_array_equal(on_machine(node, xs)[0], OPS["ordered_rows"].meaning(xs, node.attrs)[0])
    assert np.isnan(on_machine(node, xs)[0]).all(1).tolist() == [False, True, False, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("parts", [1, 64])
def test_weights_of_places(monkeypatch: pytest.MonkeyPatch, dtype: str, parts: int) -> None:
    """Each row has three places; products are rounded before they are added. A place that does not exist gives nan."""
    rng = np.random.default_rng(4)
    monkeypatch.setattr(scatter_rows, "_PART_RANGE", (4, 4) if parts == 64 else (64, 256))
    places = rng.permutation(60).astype(np.int32)
    places[40] = 60
    starts = np.array([0, 0, 30, 31, 60], np.int32)
    rows, weight = rng.normal(size=(20, 5)).astype(dtype), rng.normal(size=60).astype(dtype)
    xs = [rows, places, starts, weight]
    types = (DType(dtype.replace("loat", "")), DType.I32, DType.I32, DType(dtype.replace("loat", "")))
    given = [value(t, x.shape) for t, x in zip(types, xs)]
    node = Builder(name="here").node(OPS["ordered_rows"], *given, how="sum", parts=1, taps=3)
    found, [wanted] = on_machine(node, xs)[0], OPS["ordered_rows"].meaning(xs, {**node.attrs, "parts": 1})
    assert np.isnan(found[3]).all() and not np.isnan(found[:3]).any()
    if parts == 1:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [type(launch.spec) for launch in lower(scattered(np.zeros(70), (3,), DType.F32, 2)[0]) or []]
    assert kinds == [RowsFew]
    monkeypatch.setattr(scatter_rows, "is_for_order", lambda length, count: True)
    kinds = [type(launch.spec) for launch in lower(scattered(np.zeros(16), (3,), DType.F32, 2)[0]) or []]
    assert kinds == [RowDigits, RowDigits, RowDigits, RowStarts, OrderedRows], "no id has several parts"
    kinds = [type(launch.spec) for launch in lower(scattered(np.zeros(17), (3,), DType.F32, 2)[0]) or []]
    assert kinds[-2:] == [OrderedRows, RowsJoin]


def test_blocks_and_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter_rows, "_FEW_IDS", (8, 1024))
    monkeypatch.setattr(scatter_rows, "_FEW_THREADS", 256)
    monkeypatch.setattr(scatter_rows, "_LONG", 64)
    monkeypatch.setattr(scatter_rows, "_PART_RANGE", (64, 256))
    found = [RowsFew(Rows(DType.BF16, "sum", 1, 2048, n, 64), DType.I32) for n in (5, 10_000, 1 << 20)]
    assert [(few.held, few.geometry.grid[0]) for few in found] == [(8, 1), (32, 313), (512, 2048)]
    wide = RowsFew(Rows(DType.F32, "sum", 1, 2048, 10_000, 768), DType.I32)
    assert (wide.held, wide.geometry.grid[0]) == (128, 79 * 6), "a block has 32 vectors of 4 columns"
    few = [RowsFew(Rows(DType.BF16, "sum", 9000, n, 2000, 1), DType.I32) for n in (4096, 8192)]
    assert [each.held for each in few] == [1024, 512], "48 KiB of shared memory"
    teams = [
        (Rows(DType.BF16, "sum", 1, 9, 9, n).vector, Rows(DType.BF16, "sum", 1, 9, 9, n).team) for n in (1, 40, 512)
    ]
    assert teams == [(1, 1), (8, 8), (8, 32)]
    assert [part_of(n) for n in (1, 64, 4097, 12_800, 16_384, 16_385, 1 << 30)] == [64, 64, 128, 128, 128, 256, 256]


def test_a_block_has_few_keys_where_few_blocks_would_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    tiles = [Digits(DType.I32, 1, length, 100).tile for length in (10_241, 65_536, 65_537, 600_000, 2_000_000)]
    assert tiles == [256, 256, 512, 4096, 4096]
