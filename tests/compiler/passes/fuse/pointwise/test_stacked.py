"""stacked: the parts of a concatenated tensor are computed where they belong; the same bits, and no copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.cost import kind, moved, operations
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.pointwise import parts as parts_module
from dslc.compiler.passes.fuse.pointwise.stacked import stacked
from dslc.compiler.pipeline import compile_entry

FORE, BACK = Builder(name="part"), Builder(name="part", phase=Phase.BACKWARD)
X, Y, W = (input_of(name, Kind.DATA, 4, 6, 16) for name in "xyw")
ROW = input_of("row", Kind.PARAM, 16)

#: Rotary positions as papers write them.
ROTARIES = {
    "halves": "a, b = split(x, 2)\n  return concat([a*cos(t) - b*sin(t), b*cos(t) + a*sin(t)])",
    "half turned": "a, b = split(x, 2)\n  c, s = concat([cos(t), cos(t)]), concat([sin(t), sin(t)])\n"
    "  return x*c + concat([-b, a])*s",
    "pairs": "a, b = x[..., ::2], x[..., 1::2]\n"
    "  c, s = repeat_interleave(cos(t), 2, axis=-1), repeat_interleave(sin(t), 2, axis=-1)\n"
    "  return x*c + reshape(stack([-b, a], axis=-1), [B, H, T, N])*s",
    "pairs of a view": "z = reshape(x, [B, H, T, N/2, 2])\n  a, b = z[..., 0], z[..., 1]\n"
    "  return reshape(stack([a*cos(t) - b*sin(t), a*sin(t) + b*cos(t)], axis=-1), [B, H, T, N])",
}
MODEL = """nn 1
dim B in 1..8 = 2
block rotary(x: [B, H, T, N]) -> [B, H, T, N] {{
  t = reshape(arange(T, dtype="float"), [T, 1])*100.0^(-2.0*arange(N//2, dtype="float")/N)
  {}
}}
model M(x: [B, 6, 32]) -> [B, 6, 32] {{
  q, v = x |> linear(64) as q |> rearrange("B T (two h d) -> two B h T d", two=2, h=2)
  return sdpa(rotary(q), q, v) |> rearrange("B h T d -> B T (h d)")
}}
train M(wanted: [B, 6, 32]) {{
  loss      = mse(output, wanted)
  optimizer = sgd(lr=0.1)
}}
"""


def cut(x: Value, start: int, stop: int, step: int = 1, b: Builder = FORE) -> Value:
    return b(OPS["slice"], x, starts=(0, 0, start), stops=(4, 6, stop), steps=(1, 1, step))


def op(name: str, *xs: Value, b: Builder = FORE, **attrs: Any) -> Value:
    return b(OPS[name], *xs, **attrs)


def joined(*xs: Value, axis: int = 2, b: Builder = FORE) -> Value:
    return b(OPS["concat"], *xs, axis=axis)


def checked(*results: Value, inputs: tuple[Any, ...] = (X, Y, W, ROW)) -> Graph:
    graph = graph_of([*inputs], {f"result.{i}": v for i, v in enumerate(results)})
    after = stacked(graph)
    verify_graph(after)
    assert stacked(after) is after, "a second run changes something"
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    return after


def named(graph: Graph, *names: str) -> list[Node]:
    return [n for n in graph.nodes if n.op.name in names]


def test_parts_are_computed_in_their_places(golden: Callable[[str, str], None]) -> None:
    a, b = cut(X.value, 0, 8), cut(X.value, 8, 16)
    whole = joined(op("mul", a, b), op("neg", a))
    graph = graph_of([X], {"result.y": op("softmax", whole, axis=2)})
    after = stacked(graph)
    assert_same_bits(evaluate(graph, feeds_of(graph, 0)), evaluate(after, feeds_of(graph, 0)))
    [node] = named(after, "fused_stack")
    assert not named(after, "concat") and kind(node) == "elements"
    assert moved(node) == 4 * (2 * 4 * 6 * 8 + 4 * 6 * 16), "each part once"
    assert operations(node) == 4 * 6 * 8 * 2
    golden("passes/stacked.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_parts_that_others_read_are_copied() -> None:
    a, b = op("exp", cut(X.value, 0, 8)), op("neg", cut(Y.value, 0, 8))
    after = checked(op("softmax", joined(a, b), axis=2), op("softmax", a, axis=2))
    [node] = named(after, "fused_stack")
    assert [n.op.name for n in named(after, "exp", "neg")] == ["exp"] and any(
        v.producer is not None for v in node.inputs
    )


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((op("exp", cut(X.value, 0, 4)), op("neg", cut(X.value, 4, 16))), id="of two sizes"),
        pytest.param((X.value, Y.value), id="that are only copied"),
        pytest.param((op("softmax", X.value, axis=2), Y.value), id="of other ops"),
        pytest.param((op("exp", X.value, b=BACK), Y.value), id="of another phase"),
        pytest.param(tuple(op("exp", cut(X.value, i, i + 1)) for i in range(16)), id="too many"),
    ],
)
def test_parts_that_stay(parts: tuple[Value, ...]) -> None:
    assert len(named(checked(op("softmax", joined(*parts), axis=2)), "concat")) == 1


def test_a_tensor_that_is_read_whole_and_in_parts_stays() -> None:
    after = checked(op("softmax", joined(op("add", X.value, Y.value), op("mul", X.value, ROW.value)), axis=2))
    assert named(after, "fused_stack")
    whole = Builder(name="both").node(
        OPS["fused"], X.value, Y.value,
        body=(("slice", (0,), (("starts", (0, 0, 0)), ("steps", (1, 1, 1)), ("stops", (4, 6, 16)))),
              ("add", (2, 1), ())),
    )  # fmt: skip
    after = checked(op("softmax", joined(whole.out, op("exp", X.value)), axis=2))
    assert not named(after, "fused_stack")


def test_an_only_reader_is_computed_part_by_part() -> None:
    """Also its inputs that are split in the same way, and a tensor of which it and the parts read all."""
    inner = op("mul", X.value, ROW.value)
    turned = joined(op("neg", cut(inner, 8, 16)), cut(inner, 0, 8))
    after = checked(op("softmax", op("add", op("mul", turned, Y.value), ROW.value), axis=2))
    assert named(after, "concat") or named(after, "fused_stack"), "two nodes read the inner one"
    body: Any = (("mul", (0, 1), ()), ("add", (4, 2), ()), ("sub", (5, 3), ()))
    reader = FORE.node(OPS["fused"], turned, Y.value, ROW.value, inner, body=body)
    after = checked(op("softmax", reader.out, axis=2))
    [node] = named(after, "fused_stack")
    assert not named(after, "concat", "slice", "neg", "mul")
    assert set(node.inputs) == {X.value, Y.value, ROW.value}


def test_elements_in_turn() -> None:
    a, b = cut(X.value, 0, 16, 2), cut(X.value, 1, 16, 2)
    wide = [op("reshape", v, shape=(4, 6, 8, 1)) for v in (op("neg", b), a)]
    turned = op("reshape", joined(*wide, axis=3), shape=(4, 6, 16))
    reader = FORE.node(OPS["fused"], turned, X.value, body=(("mul", (0, 1), ()),))
    after = checked(op("softmax", reader.out, axis=2))
    [node] = named(after, "fused_stack")
    assert node.attrs["axis"] == 3 and set(node.inputs) == {X.value} and not named(after, "concat", "slice", "neg")


@pytest.mark.parametrize("perm", [(1, 0, 2, 3), (2, 1, 0, 3), (0, 1, 3, 2)])
def test_a_transpose_of_parts(perm: tuple[int, ...]) -> None:
    wide = [op("reshape", v, shape=(1, 4, 6, 16)) for v in (op("exp", X.value), Y.value, W.value)]
    after = checked(op("softmax", op("transpose", joined(*wide, axis=0), perm=perm), axis=3))
    assert len(named(after, "fused_stack")) == 1
    assert len(named(after, "transpose")) == (perm[-1] != 3), "rows of whole sectors stay rows"


def test_parts_that_are_placed() -> None:
    """As in the gradient of a split."""
    parts = op("exp", cut(X.value, 0, 8)), op("neg", cut(X.value, 8, 16))
    whole = FORE(OPS["placed"], *parts[::-1], shape=(4, 6, 16), starts=((0, 0, 8), (0, 0, 0)))
    after = checked(op("softmax", whole, axis=2))
    assert named(after, "fused_stack") and not named(after, "placed")


def test_more_steps_than_a_node_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MAX_STEPS", 3)
    a, b = op("exp", cut(X.value, 0, 8)), op("neg", cut(X.value, 8, 16))
    assert named(checked(op("softmax", joined(a, b), axis=2)), "concat")


@pytest.mark.parametrize("form", ROTARIES)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_rotary_positions_are_one_kernel_each_way(form: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(MODEL.format(ROTARIES[form]), encoding="utf-8")
    model, options = check_file(path), Options(target=target, provider="own")
    before, after = (
        compile_entry(model, "train_step", {"B": 2}, options, after=name)[0].graph
        for name in ("slice_reads", "stacked")
    )
    verify_graph(after)
    found = {n.phase for n in named(after, "fused_stack")}
    assert found == {Phase.FORWARD, Phase.BACKWARD} or (target == "cpu" and form == "pairs" and Phase.FORWARD in found)
    large = [n for n in named(after, "concat", "slice", "pad", "placed") if "rotary" in n.name and n.types[0].rank == 4]
    large = [n for n in large if target != "cpu" or n.phase is Phase.FORWARD]
    assert not large, [str(n) for n in large]
    feeds = feeds_of(before, 1)
    assert_same_bits(evaluate(before, feeds), evaluate(after, feeds))
    assert all(np.isfinite(x).all() for x in evaluate(after, feeds).values())


def test_what_is_left_with_one_reader_is_computed_part_by_part() -> None:
    """A tensor of given parts with two readers: one is computed part by part with its own stack, then the other."""
    a, b = (input_of(name, Kind.DATA, 1, 4).value for name in "ab")
    inputs = (a.producer, b.producer)
    given = op("concat", a, b, axis=0)
    first = op("maximum", given, op("concat", op("tanh", a), op("exp", b), axis=0))
    graph = checked(first, op("minimum", given, a), inputs=inputs)
    assert not named(graph, "concat") and len(named(graph, "fused_stack")) == 2
