"""Attention with a bias, in tiles and in separate kernels: what it computes, as compiled, thread by thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.evaluation import apply

from dslc.compiler.codegen.cuda.attention.pair_gradient import PairGradient, fits_whole
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType


def value(dtype: DType, shape: tuple[int, ...]) -> Value:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def nodes(
    dtype: DType, lead: tuple[int, ...], queries: int, keys: int, features: int, bias: tuple[int, ...],
    mask: tuple[int, ...] = (), trained: bool = True, **more: Any,
) -> tuple[Node, Node]:  # fmt: skip
    """An ``sdpa`` with a bias, and its gradient."""
    q, k, v, dy = (value(dtype, (*lead, n, features)) for n in (queries, keys, keys, queries))
    terms = [*([value(DType.B1, mask)] if mask else []), value(dtype, bias)]
    attrs = {"causal": False, "scale": features**-0.5, **({} if dtype.is_half else {"tf32": True}), **more}
    forward = Builder(name="here").node(OPS["sdpa"], q, k, v, *terms, **attrs)
    wanted = {"bias": True} if trained else {}
    return forward, Builder(name="here").node(
        OPS["sdpa_grad"], q, k, v, *forward.outputs, dy, *terms, **attrs, **wanted
    )


#: dtype, leading axes, queries, keys, features, shapes of the bias and of a mask, whether the bias needs a gradient,
#: and further attributes.
TILES = [
    (DType.BF16, (2, 2), 13, 11, 32, (2, 13, 11), (), True, {}),  # windows: one tile has all of it
    (DType.F32, (3, 2, 1), 9, 9, 24, (2, 1, 9, 9), (), True, {"causal": True}),
    (DType.F32, (2, 1), 17, 5, 64, (2, 1, 1, 5), (2, 1, 17, 5), True, {}),
    (DType.F16, (5, 1), 7, 12, 32, (7, 12), (), False, {}),
    (DType.BF16, (1, 1), 70, 66, 32, (1, 70, 66), (1, 1, 1, 66), True, {}),  # several tiles
    (DType.F32, (2, 1), 66, 66, 32, (66, 66), (), True, {"causal": True}),
]
PARTS = [
    (DType.F32, (2, 2), 5, 6, 12, (2, 5, 6), (), True, {"tf32": False}),  # 12 features fill no chunks
    (DType.F32, (2, 3), 5, 6, 12, (2, 1, 1, 6), (5, 6), True, {}),
    (DType.F64, (2, 3), 4, 4, 4, (3, 4, 4), (), True, {"causal": True, "tf32": False}),
]


@pytest.mark.parametrize(
    ("dtype", "lead", "queries", "keys", "features", "bias", "mask", "trained", "more"),
    [*(pytest.param(*each, marks=pytest.mark.slow) for each in (*TILES, PARTS[2])), *PARTS[:2]],
)
def test_it_is_the_attention_in_f64(
    dtype: DType, lead: tuple[int, ...], queries: int, keys: int, features: int, bias: tuple[int, ...],
    mask: tuple[int, ...], trained: bool, more: dict[str, Any],
) -> None:  # fmt: skip
    forward, back = nodes(dtype, lead, queries, keys, features, bias, mask, trained, **more)
    rng, tensors = np.random.default_rng(queries), (*back.inputs[:3], back.inputs[5], back.inputs[-1])
    q, k, v, dy, added = (simulator.held(rng.normal(size=x.type.ints), DType.BF16) for x in tensors)
    added[..., -1] = -np.inf  # a key that nobody sees
    if added.shape[-2] == queries:
        added[..., 0, :] = -np.inf  # a query that sees nothing
    terms = [*([rng.random(mask) < 0.7] if mask else []), added]
    attrs = {name: x for name, x in forward.attrs.items() if name != "tf32"}
    wide = [x.astype(np.float64) if x.dtype != bool else x for x in (q, k, v, *terms)]
    y, lse = apply(forward.op, wide, attrs)
    told = {**attrs, **({"bias": True} if trained else {})}
    slopes = apply(back.op, [*wide[:3], y, lse, dy.astype(np.float64), *wide[3:]], told)
    close = {DType.F64: 1e-12, DType.F32: 2e-3, DType.F16: 2e-3, DType.BF16: 2e-2}[dtype]
    got = on_machine(forward, [q, k, v, *terms])
    _near(got, (y, lse), close)
    held = [simulator.held(np.asarray(x, np.float32), o.type.dtype) for x, o in zip((y, lse), forward.outputs)]
    given = [q, k, v, *(held if dtype is not DType.F64 else (y, lse)), dy, *terms]
    found = on_machine(back, given)
    _near(found, slopes, close)
    assert len(found) == 3 + trained
    if (queries, keys) == (13, 11):
        again = on_machine(back, given, backwards=True)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again)), "bits depend on the order of blocks"


def _near(found: Any, right: Any, close: float) -> None:
    for x, wanted in zip(found, right, strict=True):
        there = np.isfinite(wanted)
        assert (np.isneginf(x) == ~there).all()
        size = max(1.0, float(np.abs(wanted[there]).max()))
        assert np.abs(x[there] - wanted[there]).max() < close * size


def test_few_rows_have_one_kernel_and_a_sum() -> None:
    _, windows = nodes(DType.BF16, (64, 4, 3), 49, 49, 32, (4, 3, 49, 49))
    spec = lower(windows)[0].spec  # type: ignore[index]
    assert isinstance(spec, PairGradient) and fits_whole(windows) and len(lower(windows) or []) == 2
    assert spec.walk.units == 12 and spec.walk.members == 64 and spec.walk.parts == 16
    _, fixed = nodes(DType.BF16, (64, 4, 3), 49, 49, 32, (4, 3, 49, 49), trained=False)
    assert len(lower(fixed) or []) == 1
    _, every = nodes(DType.BF16, (64, 3), 49, 49, 32, (64, 3, 49, 49))
    [launch] = lower(every) or []  # the sum of a score is written once
    assert launch.spec.result is DType.BF16  # type: ignore[attr-defined]
    _, longer = nodes(DType.BF16, (8, 3), 65, 49, 32, (3, 65, 49))
    assert not fits_whole(longer) and len(lower(longer) or []) == 5


@pytest.mark.parametrize("keys_heads", [8, 2])
@pytest.mark.parametrize("bias", [(8, 196, 196), (32, 8, 196, 196)])
def test_scratch_blocks_are_counted_from_zero(bias: tuple[int, ...], keys_heads: int) -> None:
    """Whether the gradients of keys are computed in parts or not, and the bias is shared by images or not."""
    q, k = value(DType.BF16, (32, 8, 196, 32)), value(DType.BF16, (32, keys_heads, 196, 32))
    terms, attrs = (value(DType.BF16, bias),), {"causal": False, "scale": 0.2}
    forward = Builder(name="here").node(OPS["sdpa"], q, k, k, *terms, **attrs)
    back = Builder(name="here").node(OPS["sdpa_grad"], q, k, k, *forward.outputs, q, *terms, **attrs, bias=True)
    numbers = {block.number for launch in lower(back) or [] for block in launch.scratch}
    assert numbers and numbers == set(range(len(numbers)))


@pytest.mark.parametrize(
    ("heads", "rows", "one"), [(528, 64, True), (528, 49, True), (527, 64, False), (528, 48, False), (528, 65, False)]
)
def test_many_short_heads_without_a_bias_have_one_kernel(heads: int, rows: int, one: bool) -> None:
    q = value(DType.BF16, (heads, rows, 32))
    forward = Builder(name="here").node(OPS["sdpa"], q, q, q, causal=False, scale=0.2)
    back = Builder(name="here").node(OPS["sdpa_grad"], q, q, q, *forward.outputs, q, **forward.attrs)
    assert len(lower(back) or []) == (1 if one else 3) and fits_whole(back) is one
