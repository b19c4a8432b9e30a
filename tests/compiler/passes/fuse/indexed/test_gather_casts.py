"""A table whose rows alone are read in 16 bits is not cast; its rows are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.indexed.gather_casts import gather_casts

B = Builder(name="rows")
TABLE = input_of("table", Kind.PARAM, 40, 4)
IDS = input_of("ids", Kind.DATA, 6, dtype=DType.I32)
INPUTS = [TABLE, IDS]


def rows(dtype: DType = DType.BF16, times: int = 1) -> dict[str, Value]:
    half = B(OPS["cast"], TABLE.value, dtype=dtype)
    return {f"result.y{i}": B(OPS["gather_rows"], half, IDS.value) for i in range(times)}


def test_rows_are_cast(golden: Callable[[str, str], None]) -> None:
    graph = graph_of(INPUTS, rows(times=2))
    after = gather_casts(graph)
    verify_graph(after)
    assert gather_casts(after) is after
    assert [n.op.name for n in after.nodes] == ["gather_rows", "gather_rows"]
    feeds = {"table": np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)}
    feeds["ids"] = np.array([39, 0, 7, 7, 1, 2], np.int32)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    golden("passes/gather_casts.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def _also_read() -> Graph:
    half = B(OPS["cast"], TABLE.value, dtype=DType.BF16)
    read = B(OPS["gather_rows"], half, IDS.value)
    return graph_of(INPUTS, {"result.y": read, "result.z": B(OPS["neg"], half)})


def _result() -> Graph:
    half = B(OPS["cast"], TABLE.value, dtype=DType.BF16)
    return graph_of(INPUTS, {"result.y": B(OPS["gather_rows"], half, IDS.value), "result.z": half})


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(_also_read(), id="another reader"),
        pytest.param(_result(), id="a result"),
        pytest.param(graph_of(INPUTS, rows(times=7)), id="as many elements as the table"),
        pytest.param(graph_of(INPUTS, rows(DType.F64)), id="wider"),
    ],
)
def test_other_tables_stay(graph: Graph) -> None:
    assert gather_casts(graph) is graph
