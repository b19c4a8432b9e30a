"""attention_transposes: norms, rotary embeddings and gates next to attention keep the rows' order; the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout.attention_transposes import attention_transposes
from dslc.compiler.passes.lower.layout.attention_views import attention_views
from dslc.compiler.pipeline import compile_entry

HEAD = """nn 1
dim B in 1..4 = 2
block rotated(x: [B, H, T, D]) -> [B, H, T, D] {
  angle = unsqueeze(arange(T, dtype="float"), 1) * 100.0^(-2.0*arange(D/2, dtype="float")/D)
  a, b = split(x, 2, axis=3)
  return concat([a*cos(angle) - b*sin(angle), b*cos(angle) + a*sin(angle)], axis=3)
}
block heads(x: [B, T, C], H: int) -> [B, H, T, C/H] { return x |> rearrange("B T (H D) -> B H T D", H=H) }
"""
TAIL = """
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""
#: What becomes q and k, and what is done with the result.
BODIES = {
    "plain": ("q", "k", "y"),
    "rotary": ("rotated(q)", "rotated(k)", "y"),
    "norms": ("q |> rmsnorm as qn |> rotated", "k |> layernorm as kn", "y"),
    "a gate": ("q", "k", "y * sigmoid(x |> linear(64, bias=false) as g |> heads(2))"),
    "all": (
        "q |> rmsnorm as qn |> rotated",
        "k |> rmsnorm as kn |> rotated",
        "y * silu(x |> linear(64) as g |> heads(2))",
    ),
}


def graph(tmp_path: Path, name: str, entry: str = "train_step") -> Graph:
    q, k, out = BODIES[name]
    path = tmp_path / "net.nn"
    path.write_text(f"""{HEAD}
model Net(x: [B, 24, 32]) -> [B, 5] {{
  q = x |> linear(64, bias=false) as fq |> heads(2)
  k = x |> linear(64) as fk |> heads(2)
  v = x |> linear(64) as fv |> heads(2)
  y = sdpa({q}, {k}, v, causal=true)
  z = {out} |> rearrange("B H T D -> B T (H D)")
  return z |> mean(over=1) |> linear(5) as head
}}
{TAIL}""")
    options = Options(target="sm_90", precision="bf16", provider="own")
    program, _ = compile_entry(check_file(str(path)), entry, {"B": 2}, options, after="few_queries")
    return program.graph


def moved(given: Graph) -> int:
    """Transposes that move memory, after attention has taken those next to it."""
    return Counter(node.op.name for node in attention_views(given).nodes)["transpose"]


@pytest.mark.parametrize("entry", ["train_step", "predict"])
@pytest.mark.parametrize("name", BODIES)
def test_no_transpose_of_heads_is_left_and_values_stay(name: str, entry: str, tmp_path: Path) -> None:
    before = graph(tmp_path, name, entry)
    after = attention_transposes(before)
    verify_graph(after)
    assert attention_transposes(after) is after or moved(attention_transposes(after)) == moved(after)
    assert moved(after) == 0 and (name == "plain" or moved(before) > 0)
    feeds = feeds_of(before, 1)
    wanted, found = evaluate(before, feeds), evaluate(after, feeds)
    assert wanted.keys() == found.keys()
    for key, value in wanted.items():
        far = 1e-9 * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[key], value, rtol=0, atol=far, err_msg=key)


def test_nothing_changes_without_attention_in_tiles() -> None:
    x, b = input_of("x", Kind.DATA, 2, 6, 3, 32), Builder(name="here")
    turned = b(OPS["transpose"], b(OPS["exp"], b(OPS["transpose"], x.value, perm=(0, 2, 1, 3))), perm=(0, 2, 1, 3))
    given = graph_of([x], {"y": turned})
    assert attention_transposes(given) is given


def test_a_value_that_others_read_as_it_is_has_one_transpose() -> None:
    """The rotated keys are a result, too, as of a cache."""
    q, k, v = (input_of(n, Kind.DATA, 2, 6, 3, 32, dtype=DType.BF16) for n in "qkv")
    b = Builder(name="a")
    keys, query, value = (b(OPS["transpose"], x.value, perm=(0, 2, 1, 3)) for x in (k, q, v))
    keys = b(OPS["exp"], keys)
    y = b.node(OPS["sdpa"], query, keys, value, causal=False, scale=0.2).outputs[0]
    given = graph_of([q, k, v], {"y": b(OPS["transpose"], y, perm=(0, 2, 1, 3)), "keys": keys})
    after = attention_transposes(given)
    verify_graph(after)
    assert moved(after) == moved(given) == 1
    feeds = feeds_of(given, 2)
    for key, wanted in evaluate(given, feeds).items():
        np.testing.assert_array_equal(evaluate(after, feeds)[key], wanted)


def test_the_example(golden: Callable[[str, str], None]) -> None:
    x, gate = (input_of(n, Kind.DATA, 2, 6, 3, 32, dtype=DType.BF16) for n in ("x", "gate"))
    weight = input_of("weight", Kind.DATA, 32)
    b = Builder(name="a")
    q, g = (b(OPS["transpose"], v.value, perm=(0, 2, 1, 3)) for v in (x, gate))
    q = b.node(OPS["rmsnorm"], q, weight.value, axis=3, eps=1e-6).outputs[0]
    y = b.node(OPS["sdpa"], q, q, q, causal=False, scale=0.2).outputs[0]
    before = graph_of([x, gate, weight], {"y": b(OPS["transpose"], b(OPS["mul"], y, g), perm=(0, 2, 1, 3))})
    after = attention_transposes(before)
    golden("passes/attention_transposes.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")
