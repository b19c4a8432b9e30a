"""The law of special values: an op's f32 results at zeros, denormals, infinities, nan, the greatest numbers,
saturation, ties and offsets are those of f64, rounded; and so are its gradients. ``entitled.py`` has what an op may
lose, and why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_laws.entitled import FORWARD, GRADIENT, KERNELS, SIGNED_BY_SUMS, SUMS, ULPS, allowed
from op_laws.evaluation import apply, run, values_of
from op_laws.recorder import Recorder
from op_laws.sample_cases import OPS, SAMPLES, attrs_of, every_sample, gradients_of, node_of
from op_laws.special_values import LEAST, MOST, Feed, classes, crossed, feeds, is_fed
from op_samples.sample import Sample

from dslc.compiler.ir.op import NoGradient, Op, Pointwise
from dslc.compiler.ir.types import DType

EPS = 2.0**-24


def takes_feeds(op: Op, sample: Sample) -> bool:
    """Draws of random numbers are not the same numbers in f32 and f64."""
    return not op.random and is_fed(sample.arrays(op.name))


def fed_samples(name: str) -> list[Sample]:
    return [sample for sample in SAMPLES[name] if takes_feeds(OPS[name], sample)]


def fed(op: Op, sample: Sample) -> list[Feed]:
    arrays = sample.arrays(op.name)
    return [crossed(arrays)] if isinstance(op, Pointwise) else list(feeds(arrays))


def quiet(op: Op, xs: list[np.ndarray], attrs: dict[str, Any]) -> list[np.ndarray]:
    """The op's meaning, as the executor calls it: without numpy's warnings."""
    with np.errstate(all="ignore"):
        return apply(op, xs, attrs)


def wide(xs: list[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(x, np.float64) if x.dtype == np.float32 else x for x in xs]


def faults(got: np.ndarray, exact: np.ndarray, size: np.ndarray, absolute: float) -> np.ndarray:
    """Where ``got`` is not ``exact``, an f64, as f32 has it. ``size``: of what was added up."""
    if got.dtype.kind != "f":
        return np.asarray(got != exact)
    with np.errstate(all="ignore"):
        bound = ULPS * EPS * (np.abs(exact) + size) + absolute + 256 * LEAST
        near = (np.abs(got - exact) <= bound) | (classes(got) == classes(exact.astype(np.float32))) & ~np.isfinite(got)
        overflows = np.isfinite(exact) & (np.abs(exact) + size + bound >= MOST)  # and so may what is added before
        zeros = (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact)) & (size == 0)
    return np.asarray(~near & ~overflows | zeros)


def scale(exact: np.ndarray, pointwise: bool) -> np.ndarray:
    """The size that an element's error is one of: its own in a pointwise op, else the greatest number of the result."""
    finite = np.isfinite(exact)
    most = 0.0 if pointwise or not finite.any() else float(np.max(np.abs(exact[finite])))
    return np.full(exact.shape, most if most < MOST else 0.0)


def told(feed: Feed, output: int, bad: np.ndarray, got: np.ndarray, exact: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    own = [float(x[place]) for x in feed.xs if x.dtype.kind == "f" and x.shape == got.shape]
    return f"{feed.name}: output {output} at {place} (of {own}) is {got[place]!r}, not {exact[place]!r}"


@every_sample(takes_feeds)
def test_a_result_is_that_of_double_precision(op: Op, sample: Sample) -> None:
    found = []
    for feed in fed(op, sample):
        absolute = allowed(FORWARD.get(op.name, ()), feed.name)
        if absolute is None:
            continue
        got = quiet(op, feed.xs, attrs_of(sample, DType.F32))
        exact = quiet(op, wide(feed.xs), attrs_of(sample, DType.F64))
        sizes = [scale(y, isinstance(op, Pointwise)) if y.dtype.kind == "f" else y for y in exact]
        if op.name in SUMS:
            sums = quiet(op, [np.asarray(np.abs(x)) if x.dtype.kind == "f" else x for x in wide(feed.xs)],
                         attrs_of(sample, DType.F64))  # fmt: skip
            sizes = [np.where(np.isnan(s), np.inf, np.abs(s)) if s.dtype.kind == "f" else s for s in sums]
        for i, (g, e, size) in enumerate(zip(got, exact, sizes, strict=True)):
            bad = faults(g, e, size, absolute)
            if bad.any():
                found.append(told(feed, i, bad, g, e))
    assert not found, f"{len(found)} of the feeds:\n" + "\n".join(found[:6])


def _has_own_gradient(op: Op) -> bool:
    """Ops that are a gradient themselves, or whose gradient is one op that is fed on its own, say nothing new."""
    named = {"softmax", "log_softmax", "logsumexp", "softmax_cross_entropy", "norm", "max", "min", "sum", "mean"}
    return isinstance(op, Pointwise) or op.name in named


@every_sample(lambda op, sample: _has_own_gradient(op) and takes_feeds(op, sample))
def test_a_gradient_is_that_of_double_precision(op: Op, sample: Sample) -> None:
    found = []
    for feed in fed(op, sample):
        absolute = allowed(GRADIENT.get(op.name, ()), feed.name)
        if absolute is None:
            continue
        got, exact = (_gradients(op, sample, xs, d) for xs, d in ((feed.xs, DType.F32), (wide(feed.xs), DType.F64)))
        for i, (g, e) in enumerate(zip(got, exact)):
            if g is None or e is None:
                continue
            bad = faults(g, e, scale(e, isinstance(op, Pointwise)), absolute)
            bad &= (g != 0) | (e != 0)  # a slope of zero has no sign
            if bad.any():
                found.append(told(feed, i, bad, g, e))
    assert not found, f"{len(found)} of the feeds:\n" + "\n".join(found[:6])


def _gradients(op: Op, sample: Sample, xs: list[np.ndarray], dtype: DType) -> list[Any]:
    attrs = attrs_of(sample, dtype)
    ys = quiet(op, xs, attrs)
    chosen = sample.outputs if sample.outputs is not None else range(len(ys))
    weights = [np.ones_like(y) if i in chosen and y.dtype.kind == "f" else None for i, y in enumerate(ys)]
    if all(w is None for w in weights):
        return []
    node = node_of(op, xs, attrs)
    try:
        return gradients_of(op, node, dict(zip((*node.inputs, *node.outputs), (*xs, *ys))), weights)
    except NoGradient:
        return []


#: Pointwise ops that have no limit at an infinity, or whose formula has inf * 0 or inf - inf there, and why.
NO_LIMIT = {
    **dict.fromkeys(("sin", "cos", "tan", "frac"), "they swing for ever"),
    **dict.fromkeys(("log", "log1p", "log2", "log10", "asinh", "acosh"), "1e150 is not far enough"),
    "atan2": "an angle of 45 degrees, but of two numbers that differ",
    "polygamma": "it swings for ever below 0, and for n = 0 it is a logarithm far out",
    "nan_to_num": "it replaces infinities alone",
    "clip_gradient": "what is not finite stays",
    **dict.fromkeys(("silu", "gelu", "hardswish", "mish"), "x * 0 at -inf, nan as in PyTorch"),
    **dict.fromkeys(
        ("gelu_grad", "mul", "dropped", "sub", "add", "div", "pow", "mod", "floordiv", "fmod"),
        "inf - inf, inf * 0, inf / inf",
    ),
}


@every_sample(lambda op, sample: isinstance(op, Pointwise) and op.name not in NO_LIMIT and takes_feeds(op, sample))
def test_an_infinity_gives_the_limit(op: Op, sample: Sample) -> None:
    """An op of an infinite number gives the result of a very large number: in f64, where 1e150 has a square."""
    arrays = sample.arrays(op.name)
    for i, x in enumerate(arrays):
        for sign in (1, -1) if x.dtype == np.float64 and x.size else ():
            far, beyond = ([*arrays[:i], np.full(x.shape, sign * v), *arrays[i + 1 :]] for v in (1e150, np.inf))
            [near], [limit] = (quiet(op, xs, attrs_of(sample, DType.F64)) for xs in (far, beyond))
            if near.dtype.kind != "f":
                continue
            near = np.where(np.abs(near) > 1e30, np.copysign(np.inf, near), near)
            np.testing.assert_allclose(limit, near, rtol=1e-12, atol=1e-30, err_msg=f"input {i} at {sign * np.inf}")


@pytest.mark.parametrize("name", ["batchnorm", "batchnorm_last", "layernorm", "groupnorm"])
def test_moments_of_an_offset_keep_their_digits(name: str) -> None:
    """The statistics, if not the elements less the rounded mean: all outputs but the first."""
    for op, sample in ((OPS[name], sample) for sample in fed_samples(name)):
        for feed in fed(op, sample):
            if "offset" in feed.name:
                got = quiet(op, feed.xs, attrs_of(sample, DType.F32))
                exact = quiet(op, wide(feed.xs), attrs_of(sample, DType.F64))
                for i, (g, e) in enumerate(zip(got[1:], exact[1:]), 1):
                    bad = faults(g, e, scale(e, False), 0.0)
                    assert not bad.any(), told(feed, i, bad, g, e)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, -1e6])
def test_a_variance_of_an_offset_keeps_its_digits(offset: float) -> None:
    x = (np.random.default_rng(2).normal(size=(3, 500)) + offset).astype(np.float32)
    for correction in (0, 1):
        call, [value] = Recorder(DType.F32), values_of([x])
        found = call.build("var", value, over=(1,), correction=correction)
        exact = np.var(x.astype(np.float64), axis=1, ddof=correction)
        np.testing.assert_allclose(run([found], {value: x})[0], exact, rtol=2e-6)


def test_every_excuse_is_needed() -> None:
    """The table may shrink: an op that stands in it exists, and has a reason."""
    for table in (FORWARD, GRADIENT, KERNELS):
        assert set(table) <= set(OPS)
        assert all(e.why for excuses in table.values() for e in excuses)
    assert (SUMS | SIGNED_BY_SUMS | set(NO_LIMIT)) <= set(OPS)
