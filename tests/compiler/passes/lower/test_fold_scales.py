"""fold_scales: scales of channels move into the weights of products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

IMAGE = "x: [B, 8, 6, 6]"
ROWS = "x: [B, 5, 8]"


def passed(inputs: str, body: str, **options: object) -> dict[str, Program]:
    """The program after each pass, by its name."""
    shape = inputs.removeprefix("x: ")
    checked = check_program(files(f"nn 1\ndim B in 1..8 = 2\nmodel Net({inputs}) -> {shape} {{\n{body}\n}}\n"))
    kept: dict[str, Program] = {}
    given = Options(sizes={"predict": {"B": (2,)}}, **options)  # type: ignore[arg-type]
    compile_entry(checked, "predict", {"B": 2}, given, keep=kept.__setitem__)
    return kept


def graphs(kept: dict[str, Program]) -> tuple[Graph, Graph]:
    return kept["autodiff"].graph, kept["fold_scales"].graph


def names_after(graph: Graph, product: str) -> list[str]:
    """The ops that depend on a product, in order."""
    known = {value for node in graph.nodes if node.op.name == product for value in node.outputs}
    found = []
    for node in graph.nodes:
        if not known.isdisjoint(node.inputs):
            known.update(node.outputs)
            found.append(node.op.name)
    return found


def test_the_example(golden: Callable[[str, str], None]) -> None:
    before, after = graphs(passed(IMAGE, "return x |> conv(8, 3, pad=1) |> batchnorm |> relu"))
    golden("passes/fold_scales.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize(
    ("inputs", "body", "product", "left"),
    [
        (IMAGE, "return x |> conv(8, 3, pad=1, bias=false) |> batchnorm |> relu", "conv", ["add", "relu"]),
        (IMAGE, "return x |> conv(8, 3, pad=1) |> batchnorm", "conv", ["add"]),
        (IMAGE, "return x |> conv(8, 3, pad=1, groups=8, bias=false) |> batchnorm", "conv", ["add"]),
        (IMAGE, "return x |> conv_transpose(8, 3, pad=1, bias=false) |> batchnorm", "conv_dgrad", ["add"]),
        (ROWS, "param s: [8] = normal(1)\nreturn linear(x, 8) * s + x", "matmul", ["add", "add"]),
        (ROWS, "param s: [8] = normal(1)\nreturn x + s / 3 * linear(x, 8, bias=false)", "matmul", ["add"]),
        (ROWS, "param s: [8] = normal(1)\nparam w: [8, 8] = normal(1)\nreturn (x @ w - s) / exp(s)", "matmul", ["add"]),
        (
            ROWS,
            "param s: [8, 1] = normal(1)\nreturn transpose(transpose(linear(x, 8), [0, 2, 1]) * s, [0, 2, 1])",
            "matmul", ["add", "transpose", "transpose"],
        ),
    ],
)  # fmt: skip
def test_scales_are_in_the_weights(inputs: str, body: str, product: str, left: list[str]) -> None:
    before, after = graphs(passed(inputs, body))
    assert names_after(after, product) == left != names_after(before, product)
    feeds = feeds_of(before, 1)
    [wanted], [found] = evaluate(before, feeds).values(), evaluate(after, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_two_sums_have_one_vector() -> None:
    body = """  y = x |> conv(8, 3, pad=1, bias=false) as a |> batchnorm as a_norm
  return relu(y + (x |> conv(8, 1, bias=false) as b |> batchnorm as b_norm))"""
    before, after = graphs(passed(IMAGE, body))
    assert names_after(after, "conv") == ["add", "add", "relu"]
    feeds = feeds_of(before, 1)
    [wanted], [found] = evaluate(before, feeds).values(), evaluate(after, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("inputs", "body", "why"),
    [
        (ROWS, "return linear(x, 8) + x", "nothing is scaled"),
        (ROWS, "return linear(x, 8) * sigmoid(x)", "the scale is data"),
        (ROWS, "param s: [5, 1] = normal(1)\nreturn linear(x, 8) * s", "the scale differs along rows"),
        (ROWS, "y = linear(x, 8, bias=false)\nreturn y * 3 + y", "there is another reader"),
        (ROWS, "param s: [8] = normal(1)\nreturn s / linear(x, 8)", "the product divides"),
        (IMAGE, "return x |> batchnorm |> relu |> conv(8, 3, pad=1, bias=false)", "the scale comes before"),
        (IMAGE, "return conv_transpose(x, 8, 3, pad=1, bias=false, groups=2) * 3", "channels in groups"),
    ],
)
def test_others_stay(inputs: str, body: str, why: str) -> None:
    before, after = graphs(passed(inputs, body))
    assert after is before, why


def test_nothing_is_folded_where_nothing_is_prepared() -> None:
    before, after = graphs(passed(IMAGE, "return x |> conv(8, 3, pad=1) |> batchnorm", prepare="never"))
    assert after is before


def test_what_is_folded_is_rounded_once() -> None:
    """In bf16 the scaled weights and the sum are computed in f32."""
    kept = passed(IMAGE, "return x |> conv(8, 3, pad=1, bias=false) |> batchnorm", precision="bf16")
    prepared = kept["prepare"].prepared
    assert prepared is not None
    computed = {n.types[0].dtype.value for n in kept["precision"].graph.nodes if n.op.name in ("mul", "rsqrt", "sub")}
    assert computed == {"f32"}
    names = [node.op.name for node in kept["prepare"].graph.nodes]
    assert "mul" not in names and all("mul" not in str(node.attrs) for node in kept["prepare"].graph.nodes)
