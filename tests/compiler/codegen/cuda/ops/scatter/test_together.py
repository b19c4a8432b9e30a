"""Gathers from several tables, scatters to them and orders of ids: one launch for those with equal code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter_rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.together import MAX_MEMBERS, grouped

#: Rows of a table, the shape of a row, ids. Tables of one width differ in all sizes.
TABLES: list[tuple[int, tuple[int, ...], list[int]]] = [
    (9, (8,), [8, 0, 3, 3, 3, 1]),
    (700, (8,), [699, 7, 7]),
    (3, (8,), [2] * 40),
    (5, (3,), [4, 4, 0]),
    (6, (2, 4), [5]),
]


def gathers(dtype: DType, cast: DType | None = None, ids: DType = DType.I32) -> list[Node]:
    attrs: dict[str, Any] = {} if cast is None else {"dtype": cast}
    return [
        Builder(name="here").node(OPS["gather_rows"], value(dtype, (n, *row)), value(ids, (len(at),)), **attrs)
        for n, row, at in TABLES
    ]


def scatters(dtype: DType) -> list[Node]:
    return [
        Builder(name="here").node(
            OPS["scatter_rows_add"], value(dtype, (len(at), *row)), value(DType.I32, (len(at),)), count=n
        )
        for n, row, at in TABLES
    ]


def orders(*sizes: tuple[int, int, int], ids: DType = DType.I32) -> list[Node]:
    """Of ids [parts, length] below a count."""
    b = Builder(name="here")
    return [b.node(OPS["row_order"], value(ids, (parts, length)), count=count) for parts, length, count in sizes]


def operands(nodes: list[Node], dtype: DType) -> list[np.ndarray]:
    rng, found = np.random.default_rng(2), []
    for node, (_, _, ids) in zip(nodes, TABLES):
        shape = node.input_types[0].ints
        x = simulator.held(rng.normal(size=shape), dtype) if dtype.is_float else rng.integers(0, 99, shape, np.int32)
        found += [x, np.array(ids, np.int64 if node.input_types[1].dtype is DType.I64 else np.int32)]
    return found


@pytest.mark.parametrize(
    ("dtype", "cast"),
    [(DType.F32, None), (DType.BF16, None), (DType.I32, None), (DType.F32, DType.BF16), (DType.F32, DType.F16)],
)
@pytest.mark.parametrize("ids", [DType.I32, DType.I64])
def test_tables_are_gathered_as_one_by_one(dtype: DType, cast: DType | None, ids: DType) -> None:
    nodes = gathers(dtype, cast, ids)
    xs = operands(nodes, dtype)
    whole = grouped(nodes)
    assert [len(launch.writes) for launch in lower(whole) or []] == [4, 1]
    for number, (got, node) in enumerate(zip(on_machine(whole, xs), nodes, strict=True)):
        own = xs[2 * number : 2 * number + 2]
        np.testing.assert_array_equal(got, on_machine(node, own)[0])
        np.testing.assert_array_equal(got, simulator.held(own[0][own[1]], cast or dtype) if dtype.is_float else got)


@pytest.mark.parametrize("wrong", [-1, 9])
def test_an_unknown_id_gives_a_row_of_nan_in_its_table(wrong: int) -> None:
    nodes = gathers(DType.F32, DType.BF16)
    xs = operands(nodes, DType.F32)
    xs[1][2] = wrong
    got = on_machine(grouped(nodes), xs)
    assert np.isnan(got[0][2]).all() and np.isfinite(got[0][[0, 1, 3, 4, 5]]).all() and np.isfinite(got[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I32])
def test_tables_get_the_bits_of_scatters_one_by_one(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter_rows, "_FEW_THREADS", 64)
    nodes = scatters(dtype)
    xs = operands(nodes, dtype)
    whole = grouped(nodes)
    assert sum(len(launch.writes) for launch in lower(whole) or []) == len(TABLES) > len(lower(whole) or [])
    for number, (got, node) in enumerate(zip(on_machine(whole, xs), nodes, strict=True)):
        np.testing.assert_array_equal(got, on_machine(node, xs[2 * number : 2 * number + 2])[0])


@pytest.mark.slow
@pytest.mark.parametrize("ids", [DType.I32, DType.I64])
def test_ids_are_ordered_as_one_by_one(ids: DType) -> None:
    """Those whose digits have as many bits are one launch a step, whatever their lengths."""
    sizes = [(1, 90, 700), (1, 40, 600), (2, 30, 400), (1, 70, 3)]
    nodes = orders(*sizes, ids=ids)
    rng, held = np.random.default_rng(3), np.int64 if ids is DType.I64 else np.int32
    xs = [rng.integers(-1, count + 1, (parts, length)).astype(held) for parts, length, count in sizes]
    launches = lower(grouped(nodes)) or []
    assert len(launches) == 2 * 3 + 1 + 3 + 1, "two digits, and one of the last table alone"
    got = iter(on_machine(grouped(nodes), xs))
    for node, x in zip(nodes, xs, strict=True):
        for wanted in on_machine(node, [x]):
            np.testing.assert_array_equal(next(got), wanted)


def test_a_block_loads_the_pointers_of_its_own_member_alone() -> None:
    """Branches lead to them. A selection among those of all members loads all of them."""
    b = Builder(name="here")
    shapes = [(900 + i, 39) for i in range(26)]
    nodes = [b.node(OPS["gather_rows"], value(DType.F32, s), value(DType.I32, (64,)), dtype=DType.BF16) for s in shapes]
    [launch] = lower(grouped(nodes)) or []
    ptx = cuda_compile.compiled(launch.code, "k", "sm_90").ptx.decode("ascii")
    assert ptx.count("selp") < 3 * 26 and ptx.count("bra") > 26


def test_odd_rows_are_gathered_by_fewer_threads() -> None:
    """A thread takes four elements of a row that has no vectors."""
    b = Builder(name="here")
    blocks = {}
    for width in (39, 40):
        node = b.node(OPS["gather_rows"], value(DType.F32, (9, width)), value(DType.I32, (4096,)))
        [launch] = lower(grouped([node, node])) or []
        blocks[width] = launch.spec.geometry.grid[0]
    assert blocks == {39: 156, 40: 160}


def test_as_many_members_as_a_node_may_have_fit_the_arguments_of_a_kernel() -> None:
    tables = [(n, n + 1) for n in range(1, MAX_MEMBERS + 1)]
    for launch in lower(grouped(orders(*((1, 40 + n, 300 + k) for n, k in tables)))) or []:
        assert 8 * len((*launch.reads, *launch.writes)) + 4 * len(launch.scalar_args) <= 4096
    for name in ("gather_rows", "scatter_rows_add"):
        nodes = [
            Builder(name="here").node(OPS["gather_rows"], value(DType.F32, (n, 4)), value(DType.I32, (k,)))
            if name == "gather_rows"
            else Builder(name="here").node(
                OPS["scatter_rows_add"], value(DType.F32, (k, 4)), value(DType.I32, (k,)), count=n
            )
            for n, k in tables
        ]
        for launch in lower(grouped(nodes)) or []:
            assert 8 * len((*launch.reads, *launch.writes)) + 4 * len(launch.scalar_args) <= 4096
