"""joined_products: products of one value with several weights are one product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry


def passed(body: str, target: str = "sm_90", **options: object) -> tuple[Graph, Graph]:
    """The graph before and after the pass."""
    source = f"nn 1\ndim B in 1..8 = 2\nmodel Net(x: [B, 16, 32]) -> [B, 16, 32] {{\n{body}\n}}\n"
    kept = {}
    given = Options(sizes={"predict": {"B": (2,)}}, target=target, **options)  # type: ignore[arg-type]
    checked = check_program(files(source))
    compile_entry(checked, "predict", {"B": 2}, given, target=target, after="joined_products", keep=kept.__setitem__)
    return kept["fold_scales"].graph, kept["joined_products"].graph


ATTENTION = """  q = x |> linear(32) as q |> rearrange("B T (h d) -> B h T d", h=2)
  k = x |> linear(32) as k |> rearrange("B T (h d) -> B h T d", h=2)
  v = x |> linear(32) as v |> rearrange("B T (h d) -> B h T d", h=2)
  return sdpa(q, k, v) |> rearrange("B h T d -> B T (h d)")"""


def products(graph: Graph) -> list[tuple[int, ...]]:
    return [node.types[0].ints for node in graph.nodes if node.op.name == "matmul"]


def check(before: Graph, after: Graph) -> None:
    feeds = feeds_of(before, 1)
    [wanted], [found] = evaluate(before, feeds).values(), evaluate(after, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_the_example(golden: Callable[[str, str], None]) -> None:
    before, after = passed("return (x |> linear(32) as q) * (x |> linear(32) as k)")
    golden("passes/joined_products.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (ATTENTION, [(2, 16, 96)]),
        ("return silu(x |> linear(32, bias=false) as a) * (x |> linear(32, bias=false) as b)", [(2, 16, 64)]),
        # one of another kind, without a bias, stays
        ("return (x |> linear(32) as a) + (x |> linear(32) as b) + (x |> linear(32, bias=false) as c)",
         [(2, 16, 64), (2, 16, 32)]),
        ("param w: [32, 32] = normal(1)\nparam v: [32, 32] = normal(1)\nreturn tanh(x @ w) + x @ v", [(2, 16, 64)]),
    ],
)  # fmt: skip
def test_products_of_one_value_are_joined(body: str, wanted: list[tuple[int, ...]]) -> None:
    before, after = passed(body)
    assert sorted(products(after)) == sorted(wanted)
    check(before, after)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return (x |> linear(32) as a) + (tanh(x) |> linear(32) as b)", "of two values"),
        ("return (x |> linear(32) as a |> softmax) + (x |> linear(32) as b)", "a softmax reads it"),
        ("y = x |> linear(32) as a\nreturn (y |> linear(32) as b) + (x |> linear(32) as c)", "a product reads it"),
        ("return concat([x |> linear(12) as a, x |> linear(20) as b], axis=2)", "a concat reads it"),
        ("return sum(x |> linear(12) as a, over=2, keep=true) + (x |> linear(32) as b)", "a sum reads it"),
        ("w = x @ x.T\nreturn w @ x + x", "no weights"),
    ],
)
def test_others_stay(body: str, why: str) -> None:
    before, after = passed(body)
    assert after is before, why


def test_only_where_launches_take_long_and_weights_are_prepared() -> None:
    for given in ({"target": "cpu"}, {"prepare": "never"}):
        before, after = passed(ATTENTION, **given)
        assert after is before
