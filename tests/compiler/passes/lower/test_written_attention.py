"""written_attention: attention that is written as products and a softmax with an added bias becomes one node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

HEAD = "nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 2, 9, 32]{}) -> [B, 2, 9, 32] {{\n"
BIAS = "  param t: [2, 9, 9] = normal(1.0)\n"
TRAIN = "train M(y: [B, 2, 9, 32]) { loss = mse(output, y); optimizer = sgd(lr=0.1) }\n"
MASK = "reshape(m > 0, [B, 1, 1, 9])"


def programs(body: str, folder: Path, entry: str = "train_step", rows: int = 2, **more: Any) -> dict[str, Program]:
    """The program after each pass."""
    source = folder / "net.nn"
    given, param = ", m: i32[B, 9]" if "(m" in body else "", BIAS if re.search(r"[^.]\bt\b", body) else ""
    source.write_text(f"{HEAD.format(given)}{param}{body}\n}}\n{TRAIN}")
    kept: dict[str, Program] = {}
    options = Options(**{"target": "sm_90", "precision": "tf32", **more})
    compile_entry(check_file(str(source)), entry, {"B": rows}, options, keep=kept.__setitem__)
    return kept


def attention(program: Program) -> list[Node]:
    return [node for node in program.graph.nodes if node.op.name.startswith(("sdpa", "softmax"))]


#: The body of the model, and what the node has after q, k and v: the shapes of a mask and of the bias, and whether it
#: is causal.
TAKEN = [
    ("  return softmax(x @ x.T * 0.2 + t) @ x", [(2, 9, 9)], False),
    ("  return softmax(t + x @ x.T / 5.0 * 2.0) @ x", [(2, 9, 9)], False),
    ("  return softmax(0.5 * x @ x.T + t + full([9], 0.25)) @ x", [(2, 9, 9)], False),
    (f"  return softmax(where({MASK}, x @ x.T + t, -inf)) @ x", [(2, 1, 1, 9), (2, 9, 9)], False),
    ("  return sdpa(x, x, x, bias=t)", [(2, 9, 9)], False),
    ("  return softmax(exp(t[:, :1, :1]) * (x @ x.T) * 0.5 + t) @ x", [(2, 9, 9)], False),
    (
        f"  return softmax(where({MASK}, x @ x.T / (1 + t[:, :, :1]^2) * mean(t) + t, -inf)) @ x",
        [(2, 1, 1, 9), (2, 9, 9)],
        False,
    ),
    ("  x = x + mean(t)\n  return softmax(x @ x.T * 0.2) @ x", [], False),
    (f"  return sdpa(x, x, x, causal=true, mask={MASK}, bias=t)", [(2, 1, 1, 9), (2, 9, 9)], True),
]


@pytest.mark.parametrize(("body", "terms", "causal"), TAKEN)
def test_it_becomes_one_node(body: str, terms: list[tuple[int, ...]], causal: bool, tmp_path: Path) -> None:
    found = programs(body, tmp_path)
    node, gradient = attention(found["attention_forms"])
    assert [t.ints for t in node.input_types[3:]] == terms
    assert node.attrs["causal"] is causal and node.attrs["tf32"] is True
    assert [t.ints for t in gradient.types[3:]] == terms[-1:]


@pytest.mark.parametrize(
    "body",
    [
        "  s = x @ x.T + t\n  p = softmax(s)\n  return p @ x + mean(p)",  # something else reads the probabilities
        "  return softmax((x @ x.T + t) * 2.0) @ x",  # the bias is scaled, too
        "  return softmax((x @ x.T + t) * t[:, :1, :1]) @ x",
        "  return softmax(x @ x.T * t[:, :1] + t) @ x",  # another factor for each key
        "  return softmax(where(t > 0, x @ x.T, -inf) * t[:, :1, :1]) @ x",  # minus infinity may change its sign
        "  return softmax(x @ x.T * -0.5 + t) @ x",
        "  return softmax(x @ x.T + t, axis=2) @ x",  # over the queries
        "  return softmax(where(t > 0, x @ x.T + t, -9.0)) @ x",  # a query that may see nothing has a mean
        "  return dropout(softmax(x @ x.T + t), 0.5) @ x",
        "  return softmax(x @ x.T + t + reshape(cast(m, \"float\"), [B, 1, 1, 9])) @ x",  # a sum for each row
        "  return sdpa(x, x, x, bias=t, softcap=5.0)",
    ],
)  # fmt: skip
def test_other_scores_stay(body: str, tmp_path: Path) -> None:
    assert not any(n.op.name == "sdpa" for n in attention(programs(body, tmp_path)["attention_forms"]))


def test_a_sum_that_predict_has_prepared_may_be_large(tmp_path: Path) -> None:
    """With one row, a bias for each head plus one for each window is as large as the scores."""
    body = "  return softmax(x @ x.T + t[:, :1] + t[:1]) @ x"
    [node] = attention(programs(body, tmp_path, "predict", rows=1)["attention_forms"])
    assert node.op.name == "sdpa" and node.input_types[3].ints == (2, 9, 9)
    assert attention(programs(body, tmp_path, rows=1)["attention_forms"])[0].op.name == "softmax"
    given = body.replace("t[:1]", "mean(x, over=3, keep=true)")  # it depends on an input
    assert [n.op.name for n in attention(programs(given, tmp_path, "predict", rows=1)["attention_forms"])] == [
        "softmax"
    ]


def test_wide_heads_with_a_bias_stay_in_tf32(tmp_path: Path) -> None:
    """As was measured."""
    body = "  wide = concat([x, x, x], axis=3)\n  return (softmax(wide @ wide.T + t) @ wide)[..., :32]"
    found = {dtype: attention(programs(body, tmp_path, precision=dtype)["autodiff"]) for dtype in ("tf32", "bf16")}
    assert [found[dtype][0].op.name for dtype in ("tf32", "bf16")] == ["softmax", "sdpa"]


@pytest.mark.parametrize("more", [{"target": "cpu", "precision": "f32"}, {"precision": "f32"}, {"fuse": False}])
def test_other_builds_stay(more: dict[str, Any], tmp_path: Path) -> None:
    assert [n.op.name for n in attention(programs(TAKEN[0][0], tmp_path, **more)["autodiff"])] == [
        "softmax",
        "softmax_grad",
    ]


@pytest.mark.parametrize(("body", "terms", "causal"), TAKEN)
def test_numbers_stay(body: str, terms: Any, causal: bool, tmp_path: Path) -> None:
    found = programs(body, tmp_path)
    other = programs(body, tmp_path, target="cpu", precision="f32")["autodiff"]
    assert attention(found["autodiff"])[0].op.name == "sdpa" != attention(other)[0].op.name
    feeds = feeds_of(other.graph, 1)
    got, wanted = (evaluate(p.graph, feeds) for p in (found["autodiff"], other))
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.abs(got[name] - value).max() < 1e-12 * max(1.0, np.abs(value).max()), name
