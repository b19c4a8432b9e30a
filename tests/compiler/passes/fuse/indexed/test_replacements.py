"""replacements: scatters that replace elements become one op along any axis, without a transpose; same results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import evaluate
from graphs.replacing import replaced, same

from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.fuse.indexed.replacements import replacements


@pytest.mark.parametrize("axis", [0, 1])
def test_kernels_of_any_axis_need_no_transpose(axis: int) -> None:
    assert same(replacements, replaced(axis, gradient=False), -1) == ["scatter_last"]
    names = same(replacements, replaced(axis, gradient=True), -1)
    assert "last_places" in names and "transpose" not in names


def test_example(golden: Callable[[str, str], None]) -> None:
    graph = replaced(0, gradient=True)
    texts = format_graph(graph), format_graph(replacements(graph))
    golden("passes/replacements.txt", "before\n\n{}\nafter\n\n{}".format(*texts))


def _sums(again: bool, dtype: DType = DType.F32) -> Graph:
    """x plus rows at ids, twice; with ``again`` the first rows are a result, too."""
    x = Input("x", Kind.DATA, TensorType(dtype, (9, 4)))
    rows = Input("rows", Kind.DATA, TensorType(dtype, (6, 4)))
    ids = Input("ids", Kind.DATA, TensorType(DType.I32, (6,)))
    b = Builder(name="here")
    one, other = (b(OPS["scatter_rows_add"], b(OPS[name], rows.value), ids.value, count=9) for name in ("exp", "tanh"))
    results = {"result.y": b(OPS["add"], other, b(OPS["add"], x.value, one))} | ({"result.z": one} if again else {})
    return Graph((x, rows, ids), order(list(results.values())), results)


@pytest.mark.parametrize(("again", "left"), [(False, 0), (True, 1)])
def test_rows_are_added_to_a_tensor_in_its_place(again: bool, left: int) -> None:
    graph = _sums(again)
    found = replacements(graph)
    assert sum(node.op.name == "add" for node in found.nodes) == left
    assert sum(node.op.name == "scatter_rows_add" and len(node.inputs) == 3 for node in found.nodes) == 2 - left
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in (("x", (9, 4)), ("rows", (6, 4)))}
    feeds["ids"] = np.array([3, 0, 3, 8, 3, 0], np.int32)
    was, now = evaluate(graph, feeds), evaluate(found, feeds)
    for name, value in was.items():
        np.testing.assert_allclose(now[name], value, rtol=1e-5)


def test_rows_of_16_bits_are_first_added_to_each_other() -> None:
    graph = _sums(False, DType.BF16)
    assert replacements(graph) is graph
