"""Gathers from several tables, and scatters to them, as one node, if none needs another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.together import MAX_MEMBERS
from dslc.compiler.passes.fuse.indexed import together as module
from dslc.compiler.passes.fuse.indexed.together import together

B = Builder(name="rows")
BACK = Builder(name="rows", phase=Phase.BACKWARD)


def tables(*rows: int) -> list[Input]:
    return [input_of(f"t{i}", Kind.PARAM, n, 4) for i, n in enumerate(rows)]


def ids(count: int, length: int = 5) -> list[Input]:
    return [input_of(f"i{i}", Kind.DATA, length + i, dtype=DType.I32) for i in range(count)]


def gather(table: Value, at: Value, b: Builder = B) -> Value:
    return b(OPS["gather_rows"], table, at)


def sizes(graph: Graph) -> list[int]:
    return [len(n.outputs) for n in graph.nodes if n.op.name == "together"]


def checked(graph: Graph) -> Graph:
    after = together(graph)
    verify_graph(after)
    assert together(after) is after
    rng = np.random.default_rng(4)
    feeds = {
        i.name: rng.integers(0, 3, i.value.type.ints, np.int32) if i.value.type.dtype is DType.I32
        else rng.normal(size=i.value.type.ints).astype(np.float32)
        for i in graph.inputs
    }  # fmt: skip
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    return after


def test_tables_of_several_sizes(golden: Callable[[str, str], None]) -> None:
    given, at = tables(3, 9, 700), ids(3)
    found = [gather(t.value, i.value) for t, i in zip(given, at)]
    spread = [BACK(OPS["scatter_rows_add"], y, i.value, count=n) for y, i, n in zip(found, at, (3, 9, 700))]
    graph = graph_of([*given, *at], {f"result.{n}": v for n, v in enumerate([*found, *spread])})
    after = checked(graph)
    assert sizes(after) == [3, 3]
    golden("passes/together.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_orders_of_several_tables_of_many_rows() -> None:
    given, at = tables(3, 9000), [input_of(f"i{i}", Kind.DATA, 1, 20 + i, dtype=DType.I32) for i in range(2)]
    made = [BACK.node(OPS["row_order"], i.value, count=n) for i, n in zip(at, (3, 9000))]
    graph = graph_of([*given, *at], {f"result.{n}": v for n, v in enumerate(v for node in made for v in node.outputs)})
    assert sizes(checked(graph)) == [4]


def test_an_order_of_many_ids_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ORDERED", 20)
    at = [input_of(f"i{i}", Kind.DATA, 1, 20 + i // 2, dtype=DType.I32) for i in range(4)]
    made = [BACK.node(OPS["row_order"], i.value, count=3) for i in at]
    graph = graph_of(at, {f"result.{n}": v for n, v in enumerate(v for node in made for v in node.outputs)})
    assert sizes(checked(graph)) == [4]


def test_a_gather_that_needs_another_stays_apart() -> None:
    """Rows whose ids are rows of a table: two levels, each of which is one node."""
    links = [input_of(f"l{i}", Kind.PARAM, 3, dtype=DType.I32) for i in range(2)]
    given, at = tables(3, 4), ids(2)
    found = [gather(t.value, gather(link.value, i.value)) for t, link, i in zip(given, links, at)]
    graph = graph_of([*given, *links, *at], {f"result.{n}": v for n, v in enumerate(found)})
    assert sizes(checked(graph)) == [2, 2]


def test_paths_through_others_make_no_cycle() -> None:
    """The first of one pair needs the second of the other, and the reverse would be a cycle if depth did not tell."""
    given, at = tables(3, 3, 3, 3), ids(1)
    i = at[0].value
    first, second = gather(given[0].value, i), gather(given[1].value, i)
    later = [B(OPS["scatter_rows_add"], B(OPS["exp"], y), i, count=3) for y in (first, second)]
    more = gather(later[0], i)
    last = B(OPS["scatter_rows_add"], more, i, count=3)
    graph = graph_of([*given, *at], {"result.a": last, "result.b": later[1], "result.c": second})
    assert sizes(checked(graph)) == [2, 2]


def test_phases_stay_apart() -> None:
    given, at = tables(3, 3), ids(1)
    one, other = gather(given[0].value, at[0].value), gather(given[1].value, at[0].value, BACK)
    graph = graph_of([*given, *at], {"result.a": one, "result.b": other})
    assert together(graph) is graph


@pytest.mark.parametrize("limit", ["bytes", "rows"])
def test_large_ones_stay_alone(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit == "bytes":
        monkeypatch.setattr(module, "MAX_BYTES", 9 * 4 * 4 - 1)
    else:
        monkeypatch.setattr(module, "MANY_ELEMENTS", 4)
    rows, at = [input_of(f"r{i}", Kind.DATA, 5 + i, 4) for i in range(2)], ids(2)
    found = [B(OPS["scatter_rows_add"], r.value, i.value, count=9) for r, i in zip(rows, at)]
    graph = graph_of([*rows, *at], {f"result.{n}": v for n, v in enumerate(found)})
    assert together(graph) is graph


def test_a_node_has_no_more_members_than_a_kernel_has_arguments() -> None:
    given, at = tables(*range(3, 4 + MAX_MEMBERS + 1)), ids(1)
    found = [gather(t.value, at[0].value) for t in given]
    assert sizes(checked(graph_of([*given, *at], {f"result.{n}": v for n, v in enumerate(found)}))) == [MAX_MEMBERS, 2]
