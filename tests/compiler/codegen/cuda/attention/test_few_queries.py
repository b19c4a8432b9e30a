"""Attention of few queries as compiled, next to f64: caches in parts, grouped heads, masks, caches of wider floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine

from dslc.compiler.codegen.cuda.attention.few_queries import FewQueries, part_of
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.few_queries import few_queries, fits
from dslc.compiler.ops.compound.strided_attention import View, whole
from dslc.compiler.ops.products.attention import sdpa


def value(dtype: DType, *shape: int) -> Any:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def node_of(
    dtype: DType, kept: DType, keys: int, heads: int = 2, share: int = 1, queries: int = 1, features: int = 32,
    mask: tuple[int, ...] = (),
) -> Node:  # fmt: skip
    """Attention to a cache [keys, heads, features]."""
    q, k = (value(dtype, 1, n, rows, features) for n, rows in ((heads * share, queries), (heads, keys)))
    masks = [value(DType.B1, *mask)] if mask else []
    plain = Builder().node(sdpa, q, k, k, *masks, causal=False, scale=0.3)
    cache = View((1, heads, keys, features), (0, features, heads * features, 1))
    reads, write = [whole(q.type.ints), cache, cache], whole(q.type.ints)
    assert fits(plain, reads, write)
    caches = [value(kept, keys, heads, features) for _ in range(2)]
    views = [*reads, *(whole(x.type.ints) for x in masks)]
    return few_queries(plain, [q, *caches, *masks], views, write, q.type.ints)


def wanted(node: Node, xs: list[np.ndarray], dtype: DType) -> np.ndarray:
    """In f64."""
    q, k, v = (np.asarray(simulator.held(x, dtype), np.float64) for x in xs[:3])
    share = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.transpose(1, 0, 2), share, 0)[None] for x in (k, v))
    scores = 0.3 * q @ k.swapaxes(-1, -2)
    scores = np.where(xs[3], scores, -np.inf) if len(xs) > 3 else scores
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
        return np.nan_to_num(weights / weights.sum(-1, keepdims=True) @ np.where(np.isnan(v), 0, v))


CASES: Any = [
    ((DType.BF16, DType.F32, 300), {"heads": 1}),
    ((DType.BF16, DType.BF16, 270), {"mask": (1, 270)}),
    ((DType.F32, DType.F32, 70), {"mask": (3, 70), "queries": 3}),
    ((DType.F16, DType.F16, 37), {"share": 2, "queries": 2, "features": 40, "mask": (1, 4, 2, 37)}),
    ((DType.BF16, DType.F32, 1), {"features": 128, "mask": (1, 1)}),
    ((DType.BF16, DType.F32, 40), {"share": 8, "features": 8, "heads": 1}),
]


@pytest.mark.parametrize(("given", "more"), CASES)
def test_it_is_the_attention_in_f64(given: Any, more: dict[str, Any]) -> None:
    node, rng = node_of(*given, **more), np.random.default_rng(5)
    xs = [rng.normal(size=t.ints).astype(np.float32) for t in node.input_types[:3]]
    xs = [simulator.held(x, t.dtype) for x, t in zip(xs, node.input_types)]
    xs += [rng.random(t.ints) < 0.3 for t in node.input_types[3:]]
    [found] = on_machine(node, xs)
    np.testing.assert_allclose(
        found,
        wanted(node, xs, given[0]),
        rtol=2**-6 if given[0] is not DType.F32 else 1e-5,
        atol=2e-3 if given[0] is not DType.F32 else 1e-6,
    )


def test_keys_that_meet_no_query_are_not_read() -> None:
    """They may be anything, as a cache is where nothing was written."""
    node, rng = node_of(DType.BF16, DType.F32, 300, mask=(1, 300)), np.random.default_rng(6)
    xs = [simulator.held(rng.normal(size=t.ints).astype(np.float32), t.dtype) for t in node.input_types[:3]]
    seen = np.arange(300)[None] < 70
    xs[1][70:] = xs[2][70:] = np.nan
    [found] = on_machine(node, [*xs, seen])
    np.testing.assert_allclose(
        found, wanted(node, [xs[0], *(x[:70] for x in xs[1:]), seen[:, :70]], DType.BF16), rtol=2**-6, atol=2e-3
    )
    [none] = on_machine(node, [*xs, np.zeros_like(seen)])
    assert not none.any()


def test_a_nan_among_the_keys_shows() -> None:
    node, rng = node_of(DType.BF16, DType.F32, 300), np.random.default_rng(7)
    xs = [simulator.held(rng.normal(size=t.ints).astype(np.float32), t.dtype) for t in node.input_types]
    xs[1][200, 1] = np.nan
    [found] = on_machine(node, xs)
    assert np.isnan(found[0, 1]).all() and not np.isnan(found[0, 0]).any()


def test_a_long_cache_keeps_the_device_busy() -> None:
    specs = [
        launch.spec for launch in lower(node_of(DType.BF16, DType.F32, 8192, heads=8, share=4, features=128)) or []
    ]
    assert isinstance(specs[0], FewQueries) and specs[0].geometry.grid[0] >= 256 and len(specs) == 2
    assert specs[0].splits * specs[0].part >= 8192
    assert part_of(8, 60, 64, 1) == 60  # few keys are one part
