"""half_orders: sorts, topk and their gradients read 16 bits, with the same bits as in f32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.dtypes.half_orders import half_orders
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

B, BACK = Builder(name="a"), Builder(name="a", phase=Phase.BACKWARD)
SPECIAL = [np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, np.nan]


def built(op: str, dtype: DType, rounded: bool = True, read_again: bool = False) -> Graph:
    """An op of 16-bit values that were cast to f32, and its gradient, of which a result is f32 unless ``rounded``."""
    count = 12 if op == "sort" else 3
    x, dy = input_of("x", Kind.DATA, 4, 12, dtype=dtype), input_of("dy", Kind.DATA, 4, count, dtype=dtype)
    attrs = {"axis": 1, "descending": True} if op == "sort" else {"axis": 1, "k": count, "largest": True}
    y, place = B.node(OPS[op], B(OPS["cast"], x.value, dtype=DType.F32), **attrs).outputs
    slope = BACK(OPS["cast"], dy.value, dtype=DType.F32)
    if op == "sort":
        dx = BACK(OPS["unsort"], slope, place, axis=1)
    else:
        dx = BACK(OPS["scatter_add"], slope, place, axis=1, count=12)
    outputs = {"result.y": B(OPS["cast"], y, dtype=dtype), "result.place": place}
    outputs["result.dx"] = BACK(OPS["cast"], dx, dtype=dtype) if rounded else dx
    if read_again:
        outputs["result.e"] = BACK(OPS["exp"], dx)
    return graph_of([x, dy], outputs)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.parametrize(("op", "back"), [("sort", "unsort"), ("topk", "scatter_add")])
def test_nothing_is_cast(op: str, back: str, dtype: DType) -> None:
    graph = built(op, dtype)
    found = simplify_graph(half_orders(graph))
    verify_graph(found)
    assert [node.op.name for node in found.nodes] == [op, back]
    assert {name: value.type for name, value in found.outputs.items()} == {n: v.type for n, v in graph.outputs.items()}
    assert half_orders(found) is found
    if dtype is DType.F16:  # numpy has no bf16
        numbers = np.random.default_rng(0).normal(size=(4, 12)).round(1).astype(np.float16)
        numbers[0, : len(SPECIAL)] = SPECIAL
        feeds = {"x": numbers, "dy": numbers[:, : found.inputs[1].value.type.ints[1]]}
        assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))


def test_golden(golden: Callable[[str, str], None]) -> None:
    before = built("sort", DType.BF16)
    golden("passes/half_orders.txt", f"{format_graph(before)}\nbecomes\n\n{format_graph(half_orders(before))}")


@pytest.mark.parametrize("changed", [{"rounded": False}, {"read_again": True}])
def test_sums_that_are_read_in_f32_stay(changed: dict[str, bool]) -> None:
    found = half_orders(built("topk", DType.BF16, **changed))
    [scatter], [topk] = ([n for n in found.nodes if n.op.name == name] for name in ("scatter_add", "topk"))
    assert scatter.input_types[0].dtype is DType.F32 and topk.input_types[0].dtype is DType.BF16


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_other_floats_stay(dtype: DType) -> None:
    graph = built("sort", dtype)
    assert half_orders(graph) is graph
