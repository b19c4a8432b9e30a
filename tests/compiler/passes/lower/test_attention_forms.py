"""attention_forms: grouped heads and windows become reshapes and masks where no kernel in tiles computes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import build_for, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.graph import Graph, Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.strided_attention import fits_tiles
from dslc.compiler.passes.lower.attention_forms import attention_forms

B, T, D = 2, 6, 32
FORWARD, BACK = Builder(name="a"), Builder(name="a", phase=Phase.BACKWARD)


def graph(heads: int, kept: int, mask: tuple[int, ...], dtype: DType = DType.F64, **attrs: Any) -> Graph:
    """Attention with its gradients; dy is an input."""
    q, dy = (input_of(n, Kind.DATA, B, heads, T, D, dtype=dtype) for n in ("q", "dy"))
    k, v = (input_of(n, Kind.DATA, B, kept, T, D, dtype=dtype) for n in "kv")
    masks = [input_of("mask", Kind.DATA, *mask, dtype=DType.B1)] if mask else []
    given, told = (q.value, k.value, v.value), {"causal": False, "scale": 0.2, **attrs}
    more = [m.value for m in masks]
    y, lse = FORWARD.node(OPS["sdpa"], *given, *more, **told).outputs
    slopes = BACK.node(OPS["sdpa_grad"], *given, y, lse, dy.value, *more, **told).outputs
    found = {"y": y, "lse": lse, **{f"d{n}": x for n, x in zip("qkv", slopes)}}
    return graph_of([q, k, v, dy, *masks], found)


def after(before: Graph, target: str, **more: Any) -> Graph:
    program = Program("train_step", {}, before, target=target)
    build = build_for(before, target=target, **more)
    found = attention_forms(program, build)
    verify_graph(found.graph)
    assert attention_forms(found, build) is found, "a second run changes something"
    return found.graph


MASKS = [(), (B, 1, 1, T), (B, 1, T, T), (T, T), (B, 6, T, T), (1, 6, 1, T)]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(
    ("kept", "attrs"),
    [(2, {}), (2, {"causal": True}), (1, {"window": 3}), (6, {"window": 2, "causal": True}), (3, {"window": 9})],
)
def test_the_numbers_stay(kept: int, attrs: dict[str, Any], mask: tuple[int, ...]) -> None:
    before = graph(6, kept, mask, **attrs)
    found = after(before, "cpu")
    for node in found.nodes:
        if node.op.name.startswith("sdpa"):
            assert "window" not in node.attrs and node.input_types[0].shape[:2] == node.input_types[1].shape[:2]
    feeds = feeds_of(before, 3)
    one, other = evaluate(before, feeds), evaluate(found, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-12, atol=1e-13, err_msg=name)


def test_no_key_is_repeated() -> None:
    found = after(graph(6, 2, (B, 6, T, T), causal=True), "cpu")
    assert not any(node.op.name == "expand" and node.types[0].dtype is not DType.B1 for node in found.nodes)
    counts = Counter(node.op.name for node in found.nodes)
    assert counts["sdpa"] == counts["sdpa_grad"] == 1


@pytest.mark.parametrize(
    ("target", "dtype", "stays"),
    [("sm_90", DType.BF16, True), ("sm_90", DType.F32, False), ("cpu", DType.BF16, False)],
)
def test_kernels_in_tiles_compute_both(target: str, dtype: DType, stays: bool) -> None:
    before = graph(6, 2, (B, 1, 1, T), dtype, causal=True, window=4)
    assert (after(before, target) is before) == stays


def test_tf32_is_known_before_the_form_is_chosen() -> None:
    """Kernels in tiles compute both; where a mask keeps them from it, the separate products are in TF32, too."""
    before = graph(6, 2, (B, 1, 1, T), DType.F32, causal=True, window=4)
    found = after(before, "sm_90", precision=Precision(tf32=True))
    assert [(n.op.name, n.attrs["tf32"], n.attrs["window"]) for n in found.nodes] == [
        ("sdpa", True, 4), ("sdpa_grad", True, 4),
    ]  # fmt: skip
    for target in ("sm_90", "cpu"):
        parts = after(graph(6, 2, (1, 6, 1, T), DType.F32), target, precision=Precision(tf32=target == "sm_90"))
        marks = [n.attrs.get("tf32") for n in parts.nodes if n.op.name.startswith("sdpa")]
        assert marks == [True if target == "sm_90" else None] * 2


def test_plain_attention_stays() -> None:
    for target in ("cpu", "sm_90"):
        before = graph(6, 6, (T, T), causal=True)
        assert after(before, target) is before


def of_features(features: int, values: int, queries: int, keys: int, dtype: DType, **attrs: Any) -> Graph:
    """Attention whose keys and values have so many features, with its gradients."""
    q, k = (input_of(n, Kind.DATA, B, 2, rows, features, dtype=dtype) for n, rows in (("q", queries), ("k", keys)))
    v, dy = (input_of(n, Kind.DATA, B, 2, rows, values, dtype=dtype) for n, rows in (("v", keys), ("dy", queries)))
    given, told = (q.value, k.value, v.value), {"causal": False, "scale": 0.2, **attrs}
    y, lse = FORWARD.node(OPS["sdpa"], *given, **told).outputs
    slopes = BACK.node(OPS["sdpa_grad"], *given, y, lse, dy.value, **told).outputs
    return graph_of([q, k, v, dy], {"y": y, "lse": lse, **{f"d{n}": x for n, x in zip("qkv", slopes)}})


@pytest.mark.parametrize(("features", "values"), [(16, 8), (8, 24), (5, 9), (12, 3)])
@pytest.mark.parametrize("attrs", [{}, {"causal": True}, {"window": 5}], ids=str)
def test_features_of_zero_are_added_for_tiles(features: int, values: int, attrs: dict[str, Any]) -> None:
    """The results have no more features, and the gradient reads what the kernel wrote."""
    before = of_features(features, values, 40, 40, DType.F32, **attrs)
    found = after(before, "sm_90", precision=Precision(tf32=True))
    width = -(-max(features, values) // 8) * 8
    [forward] = (node for node in found.nodes if node.op.name == "sdpa")
    [back] = (node for node in found.nodes if node.op.name == "sdpa_grad")
    for node in (forward, back):
        assert fits_tiles(node) and all(t.ints[-1] == width for t in node.input_types[:3])
    assert back.inputs[3] is forward.outputs[0]
    feeds = feeds_of(before, 3)
    one, other = evaluate(before, feeds), evaluate(found, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(("queries", "dtype", "target"), [(1, DType.F16, "sm_90"), (64, DType.F16, "cpu")])
def test_attention_stays_if_nothing_is_gained(queries: int, dtype: DType, target: str) -> None:
    """Of one query, copies with more features would be more bytes than the scores; a CPU has no tiles."""
    before = of_features(12, 10, queries, 64, dtype)
    assert after(before, target) is before


def test_more_features_than_tiles_take_stay() -> None:
    before = of_features(260, 4, 40, 40, DType.F16)
    assert after(before, "sm_90") is before
