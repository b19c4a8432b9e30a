"""attention_views: attention reads and writes parts of tensors in place; the same bits, and no copies are left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.layout.attention_views import attention_views

B, T, H, D = 2, 6, 3, 32
FORWARD, BACK = Builder(name="a"), Builder(name="a", phase=Phase.BACKWARD)
ATTRS = {"causal": False, "scale": 0.2}


def data(name: str, *shape: int, dtype: DType = DType.BF16) -> Input:
    return input_of(name, Kind.DATA, *shape, dtype=dtype)


def turned(b: Builder, x: Value, *perm: int) -> Value:
    return b(OPS["transpose"], x, perm=perm)


def shaped(b: Builder, x: Value, *shape: int) -> Value:
    return b(OPS["reshape"], x, shape=shape)


def part(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    rank = x.type.rank
    starts = tuple(start if a == axis else 0 for a in range(rank))
    stops = tuple(stop if a == axis else n for a, n in enumerate(x.type.ints))
    return b(OPS["slice"], x, starts=starts, stops=stops, steps=(1,) * rank)


def heads(b: Builder, x: Value) -> Value:
    """[B, T, H * D] as [B, H, T, D]."""
    return turned(b, shaped(b, x, B, T, H, D), 0, 2, 1, 3)


def whole(b: Builder, x: Value) -> Value:
    """[B, H, T, D] as [B, T, H * D]."""
    return shaped(b, turned(b, x, 0, 2, 1, 3), B, T, H * D)


def after(graph: Graph) -> Counter[str]:
    """The ops after the pass, whose results are the same bits; reshapes are no work."""
    found = attention_views(graph)
    verify_graph(found)
    feeds = feeds_of(graph, 3)
    one, other = evaluate(graph, feeds), evaluate(found, feeds)
    assert one.keys() == other.keys() and all(x.tobytes() == other[name].tobytes() for name, x in one.items())
    assert attention_views(found) is found, "a second run changes something"
    return Counter(node.op.name for node in found.nodes if not node.op.view)


BOTH = Counter({"strided_sdpa": 1, "strided_sdpa_grad": 1})


def attention(
    inputs: list[Input], q: Value, k: Value, v: Value, *mask: Value, **more: Any
) -> tuple[Value, tuple[Value, ...]]:
    """y as [B, T, H * D], and the three gradients; dy is another input."""
    dy = data("dy", B, T, H * D, dtype=q.type.dtype)
    inputs.append(dy)
    attrs = {**ATTRS, **more}
    y, lse = FORWARD.node(OPS["sdpa"], q, k, v, *mask, **attrs).outputs
    given = (q, k, v, y, lse, heads(BACK, dy.value), *mask)
    return whole(FORWARD, y), BACK.node(OPS["sdpa_grad"], *given, **attrs).outputs


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_one_tensor_of_queries_keys_and_values(dtype: DType) -> None:
    """As ``rearrange("B T (three h d) -> three B h T d")`` makes them."""
    x = data("x", B, T, 3 * H * D, dtype=dtype)
    stack = turned(FORWARD, shaped(FORWARD, x.value, B, T, 3, H, D), 2, 0, 3, 1, 4)
    q, k, v = (shaped(FORWARD, part(FORWARD, stack, 0, n, n + 1), B, H, T, D) for n in range(3))
    inputs = [x]
    y, grads = attention(inputs, q, k, v)
    joined = BACK(OPS["concat"], *(shaped(BACK, g, 1, B, H, T, D) for g in grads), axis=0)
    dx = shaped(BACK, turned(BACK, joined, 1, 3, 0, 2, 4), B, T, 3 * H * D)
    assert after(graph_of(inputs, {"y": y, "dx": dx})) == BOTH


def test_gradients_in_windows_are_joined_in_place() -> None:
    """The rows of a window are no view of an image, so transposes stay, but no concat does."""
    high, wide = 2, 3  # of windows and of a window
    x, dy = data("x", B, high, 2, wide, 2, 3 * H * D), data("dy", B * high * wide, H, 4, D)
    split = shaped(FORWARD, x.value, B, high, 2, wide, 2, 3, H, D)
    stack = shaped(FORWARD, turned(FORWARD, split, 5, 0, 1, 3, 6, 2, 4, 7), 3, B * high * wide, H, 4, D)
    q, k, v = (shaped(FORWARD, part(FORWARD, stack, 0, n, n + 1), *dy.value.type.ints) for n in range(3))
    y, lse = FORWARD.node(OPS["sdpa"], q, k, v, **ATTRS).outputs
    grads = BACK.node(OPS["sdpa_grad"], q, k, v, y, lse, dy.value, **ATTRS).outputs
    joined = BACK(OPS["concat"], *(shaped(BACK, g, 1, *g.type.ints) for g in grads), axis=0)
    dx = turned(BACK, shaped(BACK, joined, 3, B, high, wide, H, 2, 2, D), 1, 2, 5, 3, 6, 0, 4, 7)
    assert after(graph_of([x, dy], {"y": y, "dx": dx})) == BOTH + Counter(["transpose"] * 2)


def test_columns_of_one_tensor() -> None:
    """As ``split`` makes them."""
    x = data("x", B, T, 3 * H * D)
    q, k, v = (heads(FORWARD, part(FORWARD, x.value, 2, n * H * D, (n + 1) * H * D)) for n in range(3))
    inputs = [x]
    y, grads = attention(inputs, q, k, v)
    dx = BACK(OPS["concat"], *(whole(BACK, g) for g in grads), axis=2)
    assert after(graph_of(inputs, {"y": y, "dx": dx})) == BOTH


def test_three_tensors() -> None:
    xs = [data(name, B, T, H * D) for name in "qkv"]
    inputs = [*xs]
    y, grads = attention(inputs, *(heads(FORWARD, x.value) for x in xs))
    found = {"y": y, **{f"d{n}": whole(BACK, g) for n, g in enumerate(grads)}}
    assert after(graph_of(inputs, found)) == BOTH


@pytest.mark.parametrize("kept", [H, 1])
@pytest.mark.parametrize("mask", [(), (B, 1, 1, T), (B, 1, T, T), (B, H, T, T), (T, T)], ids=str)
def test_grouped_heads_and_masks(mask: tuple[int, ...], kept: int) -> None:
    """Fewer heads of keys than of queries, in tensors of their own."""
    q, k, v = (data(name, B, T, n * D) for name, n in (("q", H), ("k", kept), ("v", kept)))
    masks = [data("mask", *mask, dtype=DType.B1)] if mask else []
    inputs = [q, k, v, *masks]
    few = [turned(FORWARD, shaped(FORWARD, x.value, B, T, kept, D), 0, 2, 1, 3) for x in (k, v)]
    many, read = heads(FORWARD, q.value), [m.value for m in masks]
    y, grads = attention(inputs, many, *few, *read, causal=True, window=4)
    back = [shaped(BACK, turned(BACK, g, 0, 2, 1, 3), B, T, g.type.ints[1] * D) for g in grads]
    found = {"y": y, **{f"d{n}": g for n, g in enumerate(back)}}
    assert after(graph_of(inputs, found)) == BOTH


def test_a_part_of_a_tensor_is_copied_rather_than_all_of_it_kept() -> None:
    """The values alone are of x: its other columns need not be kept for the gradient."""
    x, q, k = data("x", B, T, 3 * H * D), data("q", B, T, H * D), data("k", B, T, H * D)
    inputs = [x, q, k]
    v = heads(FORWARD, part(FORWARD, x.value, 2, 2 * H * D, 3 * H * D))
    y, grads = attention(inputs, heads(FORWARD, q.value), heads(FORWARD, k.value), v)
    found = {"y": y, **{f"d{n}": whole(BACK, g) for n, g in enumerate(grads)}}
    assert after(graph_of(inputs, found)) == BOTH + Counter(["slice"])


def test_results_that_are_read_twice_stay_and_operands_are_views() -> None:
    xs = [data(name, B, T, H * D) for name in "qkv"]
    inputs = [*xs]
    q, k, v = (heads(FORWARD, x.value) for x in xs)
    y, lse = FORWARD.node(OPS["sdpa"], q, k, v, **ATTRS).outputs
    found = after(graph_of(inputs, {"y": whole(FORWARD, y), "also": y, "lse": lse}))
    assert found == Counter(["strided_sdpa", "transpose"])


def test_heads_that_are_joined_to_queries_are_copied() -> None:
    """[B, 2, 3, T, D] as [B, 2, 3 * T, D] is no view."""
    q, k, v = data("q", B, T, 6, D), data("k", B, T, 2, D), data("v", B, T, 2, D)
    joined = shaped(FORWARD, turned(FORWARD, q.value, 0, 2, 1, 3), B, 2, 3 * T, D)
    k_, v_ = (turned(FORWARD, x.value, 0, 2, 1, 3) for x in (k, v))
    y = FORWARD.node(OPS["sdpa"], joined, k_, v_, **ATTRS).outputs[0]
    assert after(graph_of([q, k, v], {"y": y})) == Counter(["strided_sdpa", "transpose"])


@pytest.mark.parametrize(("dtype", "features"), [(DType.F32, D), (DType.BF16, 264)])
def test_other_kernels_read_whole_tensors(dtype: DType, features: int) -> None:
    xs = [data(name, B, T, H, features, dtype=dtype) for name in "qkv"]
    y = FORWARD.node(OPS["sdpa"], *(turned(FORWARD, x.value, 0, 2, 1, 3) for x in xs), **ATTRS).outputs[0]
    graph = graph_of(xs, {"y": y})
    assert attention_views(graph) is graph


def test_whole_tensors_stay() -> None:
    xs = [data(name, B, H, T, D) for name in "qkv"]
    graph = graph_of(xs, {"y": FORWARD.node(OPS["sdpa"], *(x.value for x in xs), **ATTRS).outputs[0]})
    assert attention_views(graph) is graph
