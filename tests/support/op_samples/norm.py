"""Samples of normalisations and attention. Gradient ops are held against complex-step derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType

STEP = 1e-30


def slope(f: Callable[..., Any], dy: Any, *xs: Any) -> tuple[Any, ...]:
    """The gradients of sum(dy * f(*xs)) in each of xs, by complex steps: f must be analytic (Squire and Trapp 1998)."""
    found = []
    for i, x in enumerate(xs):
        g = np.zeros(x.shape)
        for place in np.ndindex(*x.shape):
            moved = x.astype(complex)
            moved[place] += 1j * STEP
            g[place] = np.sum(dy * f(*xs[:i], moved, *xs[i + 1 :])).imag / STEP
        found.append(g)
    return tuple(found)


def _draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape)


def _standard(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * (((x - mean) ** 2).mean(axes, keepdims=True) + eps) ** -0.5


def _channels(v: Any, rank: int) -> Any:
    return v.reshape(1, -1, *[1] * (rank - 2))


def _batchnorm_y(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(i for i in range(x.ndim) if i != 1)
    return _standard(x, axes, eps) * _channels(weight, x.ndim) + _channels(bias, x.ndim)


def _batchnorm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *, eps: float, momentum: float) -> Any:
    axes = tuple(i for i in range(x.ndim) if i != 1)
    count = x.size // x.shape[1]
    unbiased = x.var(axes, ddof=1) if count > 1 else np.zeros(x.shape[1])
    return (
        _batchnorm_y(x, weight, bias, eps),
        mean + momentum * (x.mean(axes) - mean),
        var + momentum * (unbiased - var),
        x.mean(axes),
        1 / np.sqrt(x.var(axes) + eps),
    )


def _batchnorm_samples() -> tuple[list[Sample], list[Sample]]:
    forward, backward = [], []
    for shape, eps, momentum in [
        ((4, 3), 1e-5, 0.1),
        ((2, 3, 3, 2), 1e-3, 0.5),
        ((3, 1, 5), 1e-5, 1.0),
        ((2, 2, 2, 3, 2), 1e-2, 0.0),
    ]:
        c = shape[1]
        inputs = [Spec(shape), Spec((c,)), Spec((c,)), Spec((c,)), Spec((c,), low=0.5, high=2)]
        forward.append(
            Sample(
                inputs,
                {"eps": eps, "momentum": momentum},
                differentiable=(0, 1, 2),
                reference=_batchnorm,
                outputs=(0,),
                atol=1e-4,
            )
        )
        x, weight, dy = _draw(*shape), _draw(c), _draw(*shape, seed=1)
        axes = tuple(i for i in range(x.ndim) if i != 1)

        def reference(x: Any, weight: Any, mean: Any, invstd: Any, dy: Any, eps: float = eps) -> Any:
            return slope(lambda *xs: _batchnorm_y(*xs, eps), dy, x, weight, np.zeros_like(weight))

        invstd = 1 / np.sqrt(x.var(axes) + eps)
        backward.append(
            Sample([x, weight, x.mean(axes), invstd, dy], {}, differentiable=(), reference=reference, atol=1e-4)
        )
    # one value a channel: variance 0
    one = [Spec((1, 3)), Spec((3,)), Spec((3,)), Spec((3,)), Spec((3,))]
    forward.append(
        Sample(one, {"eps": 1e-5, "momentum": 0.1}, differentiable=(1, 2), reference=_batchnorm, outputs=(0,))
    )
    return forward, backward


def _along(v: Any, axis: int, rank: int) -> Any:
    return v.reshape([-1 if i == axis else 1 for i in range(rank)])


def _layernorm_y(x: Any, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    return _standard(x, (axis,), eps) * _along(weight, axis, x.ndim) + _along(bias, axis, x.ndim)


def _layernorm(x: Any, weight: Any, bias: Any, *, axis: int, eps: float) -> Any:
    return _layernorm_y(x, weight, bias, axis, eps), x.mean(axis), 1 / np.sqrt(x.var(axis) + eps)


def _rmsnorm_y(x: Any, weight: Any, axis: int, eps: float) -> Any:
    return x * ((x * x).mean(axis, keepdims=True) + eps) ** -0.5 * _along(weight, axis, x.ndim)


def _rmsnorm(x: Any, weight: Any, *, axis: int, eps: float) -> Any:
    return _rmsnorm_y(x, weight, axis, eps), 1 / np.sqrt((x * x).mean(axis) + eps)


ROWS: list[tuple[tuple[int, ...], int, float]] = [
    ((2, 3, 5), 2, 1e-5),
    ((4, 3), 0, 1e-3),
    ((2, 4, 3), 1, 1e-5),
    ((7,), 0, 1e-5),
    ((3, 1), 1, 1e-5),
    ((0, 4), 1, 1e-5),
]


def _layernorm_samples() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {"layernorm": [], "layernorm_grad": [], "rmsnorm": [], "rmsnorm_grad": []}
    for shape, axis, eps in ROWS:
        n, attrs = shape[axis], {"axis": axis, "eps": eps}
        found["layernorm"].append(
            Sample([Spec(shape), Spec((n,)), Spec((n,))], attrs, reference=_layernorm, outputs=(0,), atol=1e-4)
        )
        found["rmsnorm"].append(
            Sample([Spec(shape, gap=0.2), Spec((n,))], attrs, reference=_rmsnorm, outputs=(0,), atol=1e-4)
        )
        x, weight, dy = _draw(*shape), _draw(n), _draw(*shape, seed=1)

        def layer(x: Any, w: Any, m: Any, s: Any, dy: Any, *, axis: int, eps: float = eps) -> Any:
            return slope(lambda *xs: _layernorm_y(*xs, axis, eps), dy, x, w, np.zeros_like(w))

        def rms(x: Any, w: Any, s: Any, dy: Any, *, axis: int, eps: float = eps) -> Any:
            return slope(lambda *xs: _rmsnorm_y(*xs, axis, eps), dy, x, w)

        _, mean, invstd = _layernorm(x, weight, weight, axis=axis, eps=eps)
        _, invrms = _rmsnorm(x, weight, axis=axis, eps=eps)
        found["layernorm_grad"].append(
            Sample(
                [x, weight, np.asarray(mean), np.asarray(invstd), dy],
                {"axis": axis},
                differentiable=(),
                reference=layer,
                atol=1e-3,
            )
        )
        found["rmsnorm_grad"].append(
            Sample([x, weight, np.asarray(invrms), dy], {"axis": axis}, differentiable=(), reference=rms, atol=1e-3)
        )
    return found


def _groupnorm_y(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    parts = [_standard(p, tuple(range(1, x.ndim)), eps) for p in np.split(x, groups, axis=1)]
    return np.concatenate(parts, axis=1) * _channels(weight, x.ndim) + _channels(bias, x.ndim)


def _groupnorm(x: Any, weight: Any, bias: Any, *, groups: int, eps: float) -> Any:
    parts = [p.reshape(len(p), p[:1].size) for p in np.split(x, groups, axis=1)]
    mean, var = np.stack([p.mean(1) for p in parts], 1), np.stack([p.var(1) for p in parts], 1)
    return _groupnorm_y(x, weight, bias, groups, eps), mean, 1 / np.sqrt(var + eps)


def _groupnorm_samples() -> tuple[list[Sample], list[Sample]]:
    forward, backward = [], []
    for shape, groups, eps in [((2, 4, 3), 2, 1e-5), ((1, 3, 2, 2), 1, 1e-3), ((3, 6), 3, 1e-5), ((2, 2, 5), 2, 1e-5)]:
        c = shape[1]
        attrs = {"groups": groups, "eps": eps}
        forward.append(
            Sample([Spec(shape), Spec((c,)), Spec((c,))], attrs, reference=_groupnorm, outputs=(0,), atol=1e-4)
        )
        x, weight, dy = _draw(*shape), _draw(c), _draw(*shape, seed=1)

        def reference(x: Any, w: Any, m: Any, s: Any, dy: Any, groups: int = groups, eps: float = eps) -> Any:
            return slope(lambda *xs: _groupnorm_y(*xs, groups, eps), dy, x, w, np.zeros_like(w))

        _, mean, invstd = _groupnorm(x, weight, weight, **attrs)
        backward.append(Sample([x, weight, mean, invstd, dy], {}, differentiable=(), reference=reference, atol=1e-4))
    empty = [Spec((0, 2, 3)), Spec((2,)), Spec((2,))]
    forward.append(Sample(empty, {"groups": 1, "eps": 1e-5}, outputs=(0,)))
    return forward, backward


def _scores(q: Any, k: Any, terms: Sequence[Any], causal: bool, scale: float) -> Any:
    """[..., Tq, Tk], minus infinity where a query may not look; analytic, for complex steps."""
    scores = scale * np.einsum("...id,...jd->...ij", q, k)
    for bias in (x for x in terms if x.dtype != bool):
        scores = scores + bias
    for mask in (x for x in terms if x.dtype == bool):
        scores = np.where(mask, scores, -np.inf)
    late = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None]
    return np.where(causal & late, -np.inf, scores)


def _attend(q: Any, k: Any, v: Any, terms: Sequence[Any], causal: bool, scale: float) -> Any:
    """One query at a time."""
    scores = _scores(q, k, terms, causal, scale)
    y = np.zeros((*q.shape[:-1], v.shape[-1]), np.result_type(scores, v))
    for place in np.ndindex(*q.shape[:-1]):
        seen = np.flatnonzero(np.real(scores[place]) > -np.inf)
        if seen.size:
            e = np.exp(scores[place][seen])
            y[place] = (e / e.sum()) @ v[place[:-1]][seen]
    return y


def _lse(q: Any, k: Any, terms: Sequence[Any], causal: bool, scale: float) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(_scores(q, k, terms, causal, scale)), -1))


def _sdpa(q: Any, k: Any, v: Any, *terms: Any, causal: bool, scale: float) -> Any:
    return _attend(q, k, v, terms, causal, scale), _lse(q, k, terms, causal, scale)


def _sdpa_grad(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, *terms: Any, causal: bool, scale: float, bias: bool = False
) -> Any:
    if not bias:
        return slope(lambda *xs: _attend(*xs, terms, causal, scale), dy, q, k, v)
    masks = terms[:-1]
    return slope(lambda a, b, c, d: _attend(a, b, c, (*masks, d), causal, scale), dy, q, k, v, terms[-1])


def _attention_samples() -> tuple[list[Sample], list[Sample]]:
    forward, backward = [], []
    nowhere = np.array([[True, False, True], [False, False, False]])  # the second query may look nowhere
    cases: list[tuple[tuple[int, ...], int, int, bool, float, Any, tuple[int, ...]]] = [
        ((2, 2, 3, 4), 3, 4, False, 0.5, None, ()),
        ((1, 5, 2), 5, 3, True, 0.7, None, ()),
        ((2, 4), 3, 2, False, 0.3, None, ()),
        ((1, 1), 1, 1, True, 1.0, None, ()),
        ((2, 3, 2), 4, 2, False, 0.5, np.random.default_rng(3).random((3, 4)) < 0.6, ()),
        ((2, 3, 2), 3, 2, True, 0.5, np.array([[[True, True, True]], [[True, False, True]]]), ()),
        ((1, 2, 3), 3, 2, False, 0.5, nowhere, ()),
        ((1, 2, 32), 3, 32, False, 0.2, nowhere, ()),  # features as of tensor cores
        ((0, 2, 3), 2, 2, False, 0.5, None, ()),
        ((2, 2, 3, 4), 2, 3, False, 0.5, None, (2, 3, 2)),
        ((2, 3, 2), 3, 2, True, 0.5, nowhere[:1], (2, 1, 3)),
    ]
    for shape, keys, values, causal, scale, mask, bias in cases:
        k, v, y = (*shape[:-2], keys, shape[-1]), (*shape[:-2], keys, values), (*shape[:-1], values)
        masks = [] if mask is None else [mask]
        attrs = {"causal": causal, "scale": scale}
        inputs = [Spec(shape), Spec(k), Spec(v), *masks, *([Spec(bias)] if bias else [])]
        floats = (0, 1, 2, *([len(inputs) - 1] if bias else []))
        forward.append(Sample(inputs, attrs, differentiable=floats, reference=_sdpa, outputs=(0,)))
        arrays, terms = (
            [_draw(*shape), _draw(*k, seed=1), _draw(*v, seed=2)],
            [*masks, *([_draw(*bias, seed=4)] if bias else [])],
        )
        out = _sdpa(*arrays, *terms, **attrs)
        told = {**attrs, **({"bias": True} if bias else {})}
        given = [*arrays, *out, _draw(*y, seed=3), *terms]
        backward.append(Sample(given, told, differentiable=(), reference=_sdpa_grad))
    return forward, backward


SAMPLES: dict[str, list[Sample]] = _layernorm_samples()
SAMPLES["batchnorm"], SAMPLES["batchnorm_grad"] = _batchnorm_samples()
SAMPLES["groupnorm"], SAMPLES["groupnorm_grad"] = _groupnorm_samples()
SAMPLES["sdpa"], SAMPLES["sdpa_grad"] = _attention_samples()


def _packed(x: Any, heads: int) -> list[Any]:
    """Queries, keys and values [B, H, T, d] of [B, T, 3 * H * d]."""
    batch, length, _ = x.shape
    return list(x.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4))


def _strided_samples(batch: int, length: int, heads: int, features: int) -> tuple[Sample, Sample]:
    """Attention of columns of one tensor, and its gradient as such columns."""
    width = heads * features
    shape, attrs = (batch, heads, length, features), {"causal": True, "scale": 0.4}
    columns = [(shape, (3 * width * length, features, 3 * width, 1), n * width) for n in range(3)]
    y = (shape, (width * length, features, width, 1), 0)
    lse = ((batch, heads, length), (heads * length, length, 1), 0)
    forward = {"reads": tuple(columns), "writes": ((0, *y), (1, *lse)), "results": ((batch, length, width), lse[0])}
    backward = {"reads": (*columns, y, lse, y), "writes": tuple((0, *each) for each in columns)}
    backward["results"] = ((batch, length, 3 * width),)

    def joined(*heads_: Any) -> Any:
        return np.stack(heads_).transpose(1, 3, 0, 2, 4).reshape(batch, length, -1)

    def attended(x: Any, *_: Any, **__: Any) -> Any:
        found, sums = _sdpa(*_packed(x, heads), **attrs)
        return joined(found), sums

    def sloped(x: Any, _: Any, __: Any, found: Any, sums: Any, dy: Any, **___: Any) -> Any:
        given = [v.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for v in (found, dy)]
        return joined(*_sdpa_grad(*_packed(x, heads), given[0], sums, given[1], **attrs))

    x = _draw(batch, length, 3 * width)
    return (
        Sample([x, x, x], {**attrs, **forward}, differentiable=(), reference=attended),
        Sample(
            [x, x, x, *attended(x), _draw(batch, length, width, seed=3)], {**attrs, **backward}, differentiable=(),
            reference=sloped,
        ),
    )  # fmt: skip


_STRIDED = [_strided_samples(2, 3, 2, 4), _strided_samples(1, 3, 2, 32)]
SAMPLES["strided_sdpa"], SAMPLES["strided_sdpa_grad"] = ([pair[n] for pair in _STRIDED] for n in (0, 1))


def _few_queries_sample(share: int, queries: int, keys: int) -> Sample:
    """Queries of several heads to a cache [keys, batch, heads, features], with a mask for each query."""
    batch, heads, features = 2, 2, 8
    q, kept = (batch, heads * share, queries, features), (batch, heads, keys, features)
    width, row = heads * share * features, heads * features
    cache = (kept, (row, features, batch * row, 1), 0)
    columns = (q, (queries * width, features, width, 1), 0)
    mask = ((queries, keys), (keys, 1), 0)
    attrs = {"reads": (columns, cache, cache, mask), "writes": ((0, *columns),), "scale": 0.4, "causal": False}
    attrs |= {"results": ((batch, queries, width),), "dtype": DType.FLOAT}

    def attended(x: Any, k: Any, v: Any, mask: Any, **_: Any) -> Any:
        turned = x.reshape(batch, queries, heads * share, features).transpose(0, 2, 1, 3)
        k, v = (np.repeat(each.transpose(1, 2, 0, 3), share, axis=1) for each in (k, v))
        scores = np.where(mask, 0.4 * turned @ k.swapaxes(-1, -2), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = weights / weights.sum(-1, keepdims=True) @ v
        return found.transpose(0, 2, 1, 3).reshape(batch, queries, width)

    cached = [_draw(keys, batch, heads, features, seed=n) for n in (4, 5)]
    seen = np.arange(keys) <= np.arange(queries)[:, None] + keys // 3
    return Sample([_draw(batch, queries, width), *cached, seen], attrs, differentiable=(), reference=attended)


SAMPLES["few_queries_sdpa"] = [_few_queries_sample(1, 1, 5), _few_queries_sample(2, 3, 40)]
