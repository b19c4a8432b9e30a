"""pad_columns: products of predict have aligned rows; the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry


def passed(body: str, columns: int, **options: object) -> tuple[Program, Program, Program]:
    """The program before and after the pass, and at the end."""
    source = f"nn 1\ndim B in 1..512 = 64\nmodel Net(x: [B, 512]) -> [B, {columns}] {{\n{body}\n}}\n"
    kept: dict[str, Program] = {}
    given = {"target": "sm_90", "provider": "vendor", "precision": "bf16", "sizes": {"predict": {"B": (64,)}}} | options
    checked = check_program(files(source))
    last, _ = compile_entry(
        checked, "predict", {"B": given["sizes"]["predict"]["B"][0]}, Options(**given), target="sm_90",  # type: ignore[arg-type,index]
        keep=kept.__setitem__,
    )  # fmt: skip
    names = list(kept)
    return kept[names[names.index("pad_columns") - 1]], kept["pad_columns"], last


def test_the_example(golden: Callable[[str, str], None]) -> None:
    before, after, _ = passed("return linear(x, 99)", 99)
    golden("passes/pad_columns.txt", f"before\n\n{format_graph(before.graph)}\nafter\n\n{format_graph(after.graph)}")


@pytest.mark.parametrize("body", ["linear(x, 1001)", "linear(x, 1001, bias=false)", "tanh(x @ w)"])
def test_rows_are_aligned_and_no_copy_is_made(body: str) -> None:
    text = f"return {body}" if "w" not in body else f"param w: [512, 1001] = normal(1)\nreturn {body}"
    before, after, last = passed(text, 1001)
    [product] = [n for n in after.graph.nodes if n.op.name == "matmul"]
    assert product.types[0].ints == (64, 1008)
    feeds = feeds_of(before.graph, 1)
    [wanted], [found] = evaluate(before.graph, feeds).values(), evaluate(after.graph, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    assert "slice" not in {n.op.name for n in last.graph.nodes} and "pad" not in {n.op.name for n in last.graph.nodes}


@pytest.mark.parametrize(
    ("body", "columns", "options", "why"),
    [
        ("return linear(x, 1000)", 1000, {}, "the rows are aligned"),
        ("return linear(x, 1001)", 1001, {"provider": "own"}, "own kernels need no aligned rows"),
        ("return linear(x, 1001)", 1001, {"precision": "tf32"}, "f32"),
        ("return linear(x, 1001)", 1001, {"prepare": "never"}, "the weights would be padded at each call"),
        ("return linear(x, 1001)", 1001, {"sizes": {"predict": {"B": (4,)}}}, "few rows"),
        ("return softmax(x @ x.T @ x[:, 0:99])", 99, {}, "no weights"),
    ],
)
def test_others_stay(body: str, columns: int, options: dict[str, object], why: str) -> None:
    before, after, _ = passed(body, columns, **options)
    assert after is before, why
