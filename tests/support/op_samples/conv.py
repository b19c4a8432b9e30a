"""Samples of convolutions and pools, with slow loops as references."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

Places = tuple[int, ...]


def _products(
    x: Places, w: Places, *, stride: Places, pad: Places, dilation: Places, groups: int
) -> Iterator[tuple[Places, Places, Places]]:
    """The places in y, x and w of every product that a convolution adds up, one at a time."""
    (out, share), k, space = w[:2], w[2:], x[2:]
    count = [(n + 2 * p - d * (m - 1) - 1) // s + 1 for n, m, s, p, d in zip(space, k, stride, pad, dilation)]
    for b, o, *place in product(range(x[0]), range(out), *map(range, count)):
        first = o // (out // groups) * share
        for c, *tap in product(range(share), *map(range, k)):
            at = [i * s + t * d - p for i, s, t, d, p in zip(place, stride, tap, dilation, pad)]
            if all(0 <= a < n for a, n in zip(at, space)):
                yield (b, o, *place), (b, first + c, *at), (o, c, *tap)


def _slow_conv(x: Any, w: Any, **attrs: Any) -> Any:
    sizes = zip(x.shape[2:], w.shape[2:], attrs["stride"], attrs["pad"], attrs["dilation"])
    y = np.zeros((x.shape[0], w.shape[0], *((n + 2 * p - d * (m - 1) - 1) // s + 1 for n, m, s, p, d in sizes)))
    for in_y, in_x, in_w in _products(x.shape, w.shape, **attrs):
        y[in_y] += x[in_x] * w[in_w]
    return y


def _dgrad(dy: Any, w: Any, *, size: Any, **attrs: Any) -> Any:
    dx = np.zeros((dy.shape[0], w.shape[1] * attrs["groups"], *size))
    for in_y, in_x, in_w in _products(dx.shape, w.shape, **attrs):
        dx[in_x] += dy[in_y] * w[in_w]
    return dx


def _wgrad(x: Any, dy: Any, *, size: Any, **attrs: Any) -> Any:
    dw = np.zeros((dy.shape[1], x.shape[1] // attrs["groups"], *size))
    for in_y, in_x, in_w in _products(x.shape, dw.shape, **attrs):
        dw[in_w] += dy[in_y] * x[in_x]
    return dw


# (x, w, stride, pad, dilation, groups): batch 0 and 1, one axis to three, odd sizes, each geometry alone and together
CASES = [
    ((2, 3, 5, 5), (4, 3, 3, 3), 1, 0, 1, 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1, 1),
    ((0, 2, 4, 4), (3, 2, 2, 2), 1, 0, 1, 1),
    ((2, 2, 5, 4), (2, 2, 3, 2), (2, 1), (1, 0), 1, 1),
    ((1, 4, 6, 5), (6, 2, 3, 3), 2, 1, 1, 2),
    ((1, 3, 7, 6), (3, 1, 2, 3), 1, 2, (2, 1), 3),
    ((2, 2, 8), (3, 2, 3), 2, 1, 2, 1),
    ((1, 2, 3, 4, 3), (2, 1, 2, 2, 1), (1, 2, 1), (0, 1, 0), 1, 2),
    ((1, 1, 5, 5), (2, 1, 2, 2), 3, 0, 1, 1),  # the last row and column are in no window
    ((1, 2, 3, 2), (2, 2, 2, 1), (1, 2), (3, 4), 1, 1),  # windows of padding alone
    ((1, 2, 9, 3), (2, 2, 2, 2), 1, (0, 3), (5, 7), 1),  # the windows' elements lie further apart than windows
]


def _each(n: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    return n if isinstance(n, tuple) else (n,) * axes


def _conv_samples(op: str) -> list[Sample]:
    samples = []
    for x, w, stride, pad, dilation, groups in CASES:
        axes = len(x) - 2
        attrs: dict[str, Any] = {
            "stride": _each(stride, axes),
            "pad": _each(pad, axes),
            "dilation": _each(dilation, axes),
            "groups": groups,
        }
        count = [
            (n + 2 * p - d * (m - 1) - 1) // s + 1
            for n, m, s, p, d in zip(x[2:], w[2:], attrs["stride"], attrs["pad"], attrs["dilation"])
        ]
        dy = Spec((x[0], w[0], *count))
        if op == "conv":
            samples.append(Sample([Spec(x), Spec(w)], attrs, reference=_slow_conv))
        elif op == "conv_dgrad":
            samples.append(Sample([dy, Spec(w)], attrs | {"size": x[2:]}, reference=_dgrad))
        else:
            samples.append(Sample([Spec(x), dy], attrs | {"size": w[2:]}, reference=_wgrad))
    return samples


def _slow_windows(x: Any, k: Any, stride: Any, pad: Any, fill: float) -> Any:
    """Every window of every channel, flat: [B, C, *count, places]."""
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)], constant_values=fill)
    count = [(n - m) // s + 1 for n, m, s in zip(wide.shape[2:], k, stride)]
    result = np.zeros((*x.shape[:2], *count, int(np.prod(k))))
    for place in product(*map(range, count)):
        where = tuple(slice(i * s, i * s + m) for i, s, m in zip(place, stride, k))
        result[(slice(None), slice(None), *place)] = wide[(..., *where)].reshape(*x.shape[:2], int(np.prod(k)))
    return result


def _maxpool(x: Any, *, k: Any, stride: Any, pad: Any) -> Any:
    windows = _slow_windows(x, k, stride, pad, -np.inf)
    return windows.max(-1), windows.argmax(-1)


def _avgpool(x: Any, *, k: Any, stride: Any, pad: Any) -> Any:
    return _slow_windows(x, k, stride, pad, 0).mean(-1)


def _spread(weight: Any, dy: Any, k: Any, stride: Any, pad: Any, size: Any) -> Any:
    """Adds ``weight[..., place]`` times dy to each element of each window."""
    wide = np.zeros((*dy.shape[:2], *(n + 2 * p for n, p in zip(size, pad))))
    for b, c, *place in np.ndindex(*dy.shape):
        for i, tap in enumerate(product(*map(range, k))):
            at = tuple(p * s + t for p, s, t in zip(place, stride, tap))
            wide[(b, c, *at)] += weight[(b, c, *place, i)] * dy[(b, c, *place)]
    return wide[(..., *(slice(p, p + n) for n, p in zip(size, pad)))]


def _maxpool_grad(dy: Any, place: Any, *, k: Any, stride: Any, pad: Any, size: Any) -> Any:
    return _spread(place[..., None] == np.arange(np.prod(k)), dy, k, stride, pad, size)


def _avgpool_grad(dy: Any, *, k: Any, stride: Any, pad: Any, size: Any) -> Any:
    places = int(np.prod(k))
    return _spread(np.full((*dy.shape, places), 1 / places), dy, k, stride, pad, size)


POOLS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 2, 7, 7), (3, 3), (2, 2), (1, 1)),
    ((1, 1, 5, 4), (3, 2), (1, 2), (1, 0)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((2, 1, 7), (3,), (2,), (1,)),
    ((1, 1, 3, 4, 2), (2, 2, 2), (1, 2, 1), (0, 1, 0)),
    ((1, 1, 5, 5), (2, 2), (3, 3), (0, 0)),
    ((1, 1, 17, 17), (17, 17), (17, 17), (0, 0)),  # 289 places: the index is i32
]


def _pool_samples(op: str) -> list[Sample]:
    samples = []
    for x, k, stride, pad in POOLS:
        attrs: dict[str, Any] = {"k": k, "stride": stride, "pad": pad}
        count = [(n + 2 * p - m) // s + 1 for n, m, s, p in zip(x[2:], k, stride, pad)]
        dy = Spec((*x[:2], *count))
        places = int(np.prod(k))
        index = Spec(dy.shape, "uint8" if places <= 256 else "int32", 0, places - 1)
        match op:
            case "maxpool":
                samples.append(Sample([Spec(x, distinct=True)], attrs, reference=_maxpool))
            case "avgpool":
                samples.append(Sample([Spec(x)], attrs, reference=_avgpool))
            case "maxpool_grad":
                samples.append(Sample([dy, index], attrs | {"size": x[2:]}, differentiable=(), reference=_maxpool_grad))
            case _:
                samples.append(Sample([dy], attrs | {"size": x[2:]}, reference=_avgpool_grad))
    if op == "maxpool":
        tied = np.array([[[[1.0, 1.0, -np.inf, 2.0], [1.0, 1.0, np.nan, np.nan]]]])
        attrs = {"k": (2, 2), "stride": (2, 2), "pad": (0, 0)}
        samples.append(Sample([tied], attrs, differentiable=(), reference=_maxpool))
    return samples


SAMPLES: dict[str, list[Sample]] = {op: _conv_samples(op) for op in ("conv", "conv_dgrad", "conv_wgrad")} | {
    op: _pool_samples(op) for op in ("maxpool", "maxpool_grad", "avgpool", "avgpool_grad")
}
