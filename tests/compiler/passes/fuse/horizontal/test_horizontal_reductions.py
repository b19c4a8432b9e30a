"""join_sums: sums of one shape are one node; the same bits, unless one depends on another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of
from places import ROOT

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.horizontal import horizontal_reductions as module
from dslc.compiler.passes.fuse.horizontal.horizontal_reductions import horizontal_reductions

BACK = Builder(name="layer", phase=Phase.BACKWARD)
UPDATE = Builder(name="layer", phase=Phase.UPDATE)
X, Y = (input_of(name, Kind.DATA, 6, 4) for name in ("x", "y"))


def _sum(x: Value, b: Builder = BACK) -> Value:
    return b(OPS["sum_to"], x, shape=(x.type.ints[-1],))


def _mean(x: Value, b: Builder = BACK) -> Value:
    return b(OPS["mean"], x, over=(0,), keep=False)


def _sums(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name in ("fused_sums", "finished_sums")]


def _checked(graph: Graph, seed: int = 0) -> Graph:
    after = horizontal_reductions(graph)
    verify_graph(after)
    assert horizontal_reductions(after) is after, "a second run changes something"
    feeds = feeds_of(graph, seed)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    return after


def test_gradients_of_two_biases(golden: Callable[[str, str], None]) -> None:
    """The first is read by an update that stands before the second."""
    first = UPDATE(OPS["neg"], _sum(X.value))
    second = UPDATE(OPS["neg"], _sum(BACK(OPS["tanh"], Y.value)))
    graph = graph_of([X, Y], {"result.a": first, "result.b": second})
    after = _checked(graph)
    [both] = _sums(after)
    assert len(both.outputs) == 2 and both.phase is Phase.BACKWARD
    golden("passes/horizontal_reductions.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_means_and_a_sum(dtype: DType) -> None:
    """Of one tensor, too."""
    x, y = (input_of(name, Kind.DATA, 7, 4, dtype=dtype) for name in ("x", "y"))
    results = {"a": _mean(x.value), "b": _sum(x.value), "c": _mean(y.value)}
    after = _checked(graph_of([x, y], {f"result.{name}": v for name, v in results.items()}))
    [whole] = _sums(after)
    assert whole.op.name == "finished_sums" and whole.inputs == (x.value, y.value) and len(after.nodes) == 1


def test_a_tensor_that_is_summed_twice() -> None:
    """With numbers that come of it in two phases."""
    b = Builder(name="other", phase=Phase.BACKWARD)
    results = {"a": _sum(X.value), "b": b(OPS["sum"], X.value, over=(0,), keep=False)}
    [whole] = _sums(_checked(graph_of([X], {f"result.{name}": v for name, v in results.items()})))
    assert whole.inputs == (X.value,) and len(whole.outputs) == 2


@pytest.mark.parametrize(
    "results",
    [
        lambda: [_mean(BACK(OPS["add"], Y.value, _sum(Y.value)))],  # one depends on the other
        lambda: [_mean(BACK(OPS["add"], Y.value, UPDATE(OPS["neg"], _sum(Y.value))))],  # by a step
        lambda: [_sum(X.value), _sum(Y.value, Builder(name="a"))],  # of two phases
        lambda: [_sum(X.value), BACK(OPS["sum"], Y.value, over=(1,), keep=False)],
        lambda: [_sum(X.value), BACK(OPS["sum"], Y.value, over=(0,), keep=True)],
        lambda: [_sum(X.value), BACK(OPS["mean"], Y.value, over=(0,), keep=True)],
    ],
)
def test_what_stays_apart(results: Any) -> None:
    graph = graph_of([X, Y], {f"result.{n}": v for n, v in enumerate(results())})
    assert horizontal_reductions(graph) is graph


def test_large_sums_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SUMMED_BYTES", 6 * 4 * 4 - 1)
    graph = graph_of([X, Y], {"result.a": _sum(X.value), "result.b": _sum(Y.value)})
    assert horizontal_reductions(graph) is graph


def test_a_node_has_a_few_sums() -> None:
    inputs = [input_of(f"x{i}", Kind.DATA, 6, 4) for i in range(9)]
    graph = graph_of(inputs, {f"result.{x.name}": _sum(x.value) for x in inputs})
    after = _checked(graph)
    assert [len(n.outputs) for n in _sums(after)] == [4, 4] and len(after.nodes) == 3


def test_the_biases_of_a_perceptron() -> None:
    checked = check_file(ROOT / "benchmarks" / "mlp.nn")
    sizes = {d.name: d.default for d in checked.dims}
    program, _ = pipeline.compile_entry(checked, "train_step", sizes, Options(target="sm_90", provider="own"))
    assert [len(n.outputs) for n in _sums(program.graph)] == [2]
    assert sum(len(launches) for launches in program.kernels.values()) == 16
