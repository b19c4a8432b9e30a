"""order_rows: scatters of the same ids share one order, and read gathered rows where they are; the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.pass_examples import evaluate
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.index import ordered
from dslc.compiler.passes.fuse.indexed import order_rows as module
from dslc.compiler.passes.fuse.indexed.order_rows import order_rows

B = Builder(name="a")
COUNT, EDGES = 6, 40
X = input_of("x", Kind.DATA, COUNT, 3)
SOURCE, SINK = (input_of(name, Kind.DATA, EDGES, dtype=DType.I32) for name in ("source", "sink"))
ROWS = input_of("rows", Kind.DATA, EDGES, 2, 2)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "MANY_ROWS", 31)


def test_rows_of_few_ids_are_combined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [ordered.is_for_order(*sizes) for sizes in ((2048, 2), (2048, 8), (2048, 9), (4096, 9000))] == [
        True, True, False, True
    ]  # fmt: skip
    rows, ids = input_of("rows", Kind.DATA, 512, 4), input_of("ids", Kind.DATA, 512, dtype=DType.I32)
    graph = graph_of([rows, ids], {"result.y": B(OPS["scatter_rows_add"], rows.value, ids.value, count=2)})
    assert names(order_rows(graph)) == ["row_order", "ordered_rows"]


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name != "reshape"]


def same(graph: Graph, seed: int = 0, low: int = 0) -> Graph:
    """The graph after the pass, which has the same results and is not changed by a second run."""
    found = order_rows(graph)
    verify_graph(found)
    assert order_rows(found) is found
    rng = np.random.default_rng(seed)
    feeds = {
        i.name: rng.integers(low, COUNT, i.value.type.ints).astype(np.int32)
        if i.value.type.dtype.is_int
        else rng.normal(size=i.value.type.ints)
        for i in graph.inputs
    }
    one, other = evaluate(graph, feeds), evaluate(found, feeds)
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-12, atol=1e-12, err_msg=name)
    return found


@pytest.mark.parametrize("low", [0, -1])
def test_one_order_for_all_scatters_of_the_same_ids(low: int) -> None:
    gathered = B(OPS["gather_rows"], X.value, SOURCE.value)
    outputs = {
        "degree": B(OPS["scatter_rows_add"], ROWS.value, SINK.value, count=COUNT),
        "spread": B(OPS["scatter_rows_add"], gathered, SINK.value, count=COUNT),
        "twice": B(OPS["scatter_rows_add"], B(OPS["gather_rows"], X.value, SOURCE.value), SINK.value, count=COUNT),
    }
    ones = input_of("ones", Kind.DATA, EDGES)
    outputs["elements"] = B(OPS["scatter_rows_add"], ones.value, SINK.value, count=COUNT)
    found = same(graph_of([X, SOURCE, SINK, ROWS, ones], outputs), low=low)
    assert names(found) == ["row_order", "ordered_rows", "gather_rows", *["ordered_rows"] * 3]
    read = [node for node in found.nodes if node.op.name == "gather_rows"]
    assert read[0].types[0].dtype is DType.I32, "no row of an edge is in memory"


def test_rows_are_gathered_if_their_table_is_larger() -> None:
    table = input_of("x", Kind.DATA, EDGES + 1, 3)
    y = B(OPS["scatter_rows_add"], B(OPS["gather_rows"], table.value, SOURCE.value), SINK.value, count=COUNT)
    found = order_rows(graph_of([table, SOURCE, SINK], {"y": y}))
    assert sorted(names(found)) == ["gather_rows", "ordered_rows", "row_order"]
    assert next(n for n in found.nodes if n.op.name == "gather_rows").types[0].ints == (EDGES, 3)


@pytest.mark.parametrize("swapped", [False, True])
def test_weighted_rows_are_multiplied_when_they_are_added(swapped: bool) -> None:
    dy, weight = input_of("dy", Kind.DATA, 4, 5, 1, 3), input_of("weight", Kind.DATA, 4, 5, 2, 1)
    ids = input_of("ids", Kind.DATA, 4, 5, 2, dtype=DType.I32)
    products = B(OPS["mul"], *(each.value for each in ((weight, dy) if swapped else (dy, weight))))
    y = B(OPS["scatter_rows_add"], products, ids.value, count=COUNT)
    found = same(graph_of([dy, weight, ids], {"y": y}))
    assert names(found) == ["row_order", "ordered_rows"]
    assert next(node for node in found.nodes if node.op.name == "ordered_rows").attrs["taps"] == 2


def test_products_of_other_shapes_are_rows() -> None:
    dy, scale = input_of("dy", Kind.DATA, EDGES, 3), input_of("scale", Kind.DATA, EDGES, 1)
    rows = input_of("rows", Kind.DATA, EDGES, 3)
    for other in (scale, rows):
        y = B(OPS["scatter_rows_add"], B(OPS["mul"], dy.value, other.value), SINK.value, count=COUNT)
        assert names(same(graph_of([dy, other, SINK], {"y": y}))) == ["mul", "row_order", "ordered_rows"]


@pytest.mark.parametrize("how", ["prod", "max", "min"])
def test_reductions(how: str) -> None:
    x = input_of("x", Kind.DATA, 2, COUNT, 3)
    src, ids = input_of("src", Kind.DATA, 2, EDGES, 3), input_of("ids", Kind.DATA, 2, EDGES, dtype=DType.I32)
    y = B(OPS["scatter_reduce"], x.value, src.value, ids.value, axis=1, how=how)
    assert names(same(graph_of([x, src, ids], {"y": y}))) == ["row_order", "ordered_rows"]


def test_parts_have_keys_of_their_own_and_one_with_an_unknown_id_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "_SHORT", 0)
    src, ids = input_of("src", Kind.DATA, 2, EDGES), input_of("ids", Kind.DATA, 2, EDGES, dtype=DType.I32)
    y = B(OPS["scatter_add"], src.value, ids.value, axis=1, count=COUNT)
    graph = graph_of([src, ids], {"y": y})
    same(graph)
    rng = np.random.default_rng(0)
    feeds = {"src": rng.normal(size=(2, EDGES)), "ids": rng.integers(0, COUNT, (2, EDGES)).astype(np.int32)}
    feeds["ids"][1, 4] = COUNT
    assert np.isnan(evaluate(order_rows(graph), feeds)["y"]).all(1).tolist() == [False, True]


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.parametrize(
    ("many", "atomic", "ops"), [(99, False, []), (30, True, []), (30, False, ["row_order", "ordered_rows"])]
)
def test_elements_with_an_index_each(
    monkeypatch: pytest.MonkeyPatch, many: int, atomic: bool, ops: list[str], how: str
) -> None:
    if not atomic:
        monkeypatch.setattr(module, "by_atomics", lambda *_: False)
    monkeypatch.setattr(ordered, "MANY_ROWS", many)
    monkeypatch.setattr(module, "_MAX_SCANNED", 30)
    monkeypatch.setattr(ordered, "_SHORT", 0)  # a warp goes through no line, and no bin is small enough
    x, src = input_of("x", Kind.DATA, 2, COUNT, 3), input_of("src", Kind.DATA, 2, EDGES, 3)
    index = input_of("index", Kind.DATA, 2, EDGES, 3, dtype=DType.I32)
    if how == "sum":
        graph = graph_of([src, index], {"y": B(OPS["scatter_add"], src.value, index.value, axis=1, count=COUNT)})
    else:
        y = B(OPS["scatter_reduce"], x.value, src.value, index.value, axis=1, how=how)
        graph = graph_of([x, src, index], {"y": y})
    found = [name for name in names(same(graph)) if name != "transpose"]
    assert found == (ops or ["scatter_add" if how == "sum" else "scatter_reduce"])


def test_what_stays() -> None:
    """Few rows, and an index of each element."""
    few, each = input_of("few", Kind.DATA, 30, dtype=DType.I32), input_of("each", Kind.DATA, EDGES, 3, dtype=DType.I32)
    rows, wide = input_of("r", Kind.DATA, 30, 2), input_of("w", Kind.DATA, EDGES, 3)
    graph = graph_of(
        [few, each, rows, wide],
        {
            "few": B(OPS["scatter_rows_add"], rows.value, few.value, count=COUNT),
            "each": B(OPS["scatter_add"], wide.value, each.value, axis=0, count=COUNT),
        },
    )
    assert order_rows(graph) is graph
