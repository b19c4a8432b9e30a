"""Samples of pools to a size and of interpolation, one pixel at a time."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def keys(u: float, sharpness: float) -> float:
    """The cubic filter of Keys 1981 at a distance from its centre."""
    if u <= 1:
        return (sharpness + 2) * u**3 - (sharpness + 3) * u**2 + 1
    return sharpness * (u**3 - 5 * u**2 + 8 * u - 4) if u < 2 else 0.0


def neighbours(
    i: int, before: int, after: int, mode: str, corners: bool = False, widened: bool = False,
    ratio: tuple[int, int] | None = None,
) -> list[tuple[int, float]]:  # fmt: skip
    """Which old pixels make the new pixel i of an axis, and by how much."""
    if before == after:
        return [(i, 1.0)]
    width = Fraction(*ratio) if ratio else Fraction(before, after)
    if corners:
        width = Fraction(before - 1, after - 1) if after > 1 else Fraction(0)
    if mode == "nearest":
        return [(math.floor(i * width), 1.0)]
    if mode == "nearest-exact":
        return [(math.floor((i + Fraction(1, 2)) * width), 1.0)]
    source = i * width if corners and not widened else (i + Fraction(1, 2)) * width - Fraction(1, 2)
    if widened:
        distances = [float(abs(source - j) / max(width, 1)) for j in range(before)]
        return [(j, max(1 - u, 0.0) if mode == "linear" else keys(u, -0.5)) for j, u in enumerate(distances)]
    low = math.floor(source)
    taps = range(low - 1, low + 3) if mode == "cubic" else (low, low + 1)
    weights = [keys(float(abs(source - j)), -0.75) if mode == "cubic" else float(1 - abs(source - j)) for j in taps]
    return [(min(max(j, 0), before - 1), w) for j, w in zip(taps, weights)]


def mixtures(before: tuple[int, ...], after: tuple[int, ...], mode: str, ratio: tuple[int, ...] = (), **how: bool):
    """Each new pixel, and the old ones with their weights."""
    pairs = [ratio[i : i + 2] or None for i in range(0, 2 * len(before), 2)]
    lines = [[neighbours(i, n, m, mode, **how, ratio=r) for i in range(m)] for n, m, r in zip(before, after, pairs)]
    for at in product(*map(range, after)):
        for taps in product(*(line[i] for line, i in zip(lines, at))):
            yield at, tuple(t for t, _ in taps), math.prod(w for _, w in taps)


def resized(x: np.ndarray, size: list[int], **attrs) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *size))
    for new, old, weight in mixtures(x.shape[2:], size, **attrs):
        y[(..., *new)] += x[(..., *old)] * weight
    return y


def resized_back(dy: np.ndarray, size: list[int], **attrs) -> np.ndarray:
    dx = np.zeros((*dy.shape[:2], *size))
    for new, old, weight in mixtures(size, dy.shape[2:], **attrs):
        dx[(..., *old)] += dy[(..., *new)] * weight
    return dx


def window(i: int, before: int, after: int) -> range:
    return range(math.floor(i * before / after), math.ceil((i + 1) * before / after))


def cells(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each place of the result, and the places of its window in row-major order."""
    return [
        (at, list(product(*(window(i, n, m) for i, n, m in zip(at, before, after)))))
        for at in product(*map(range, after))
    ]


def averaged(x: np.ndarray, size: list[int]) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *size))
    for at, places in cells(x.shape[2:], tuple(size)):
        y[(..., *at)] = np.mean([x[(..., *p)] for p in places], axis=0)
    return y


def shared(dy: np.ndarray, size: list[int]) -> np.ndarray:
    dx = np.zeros((*dy.shape[:2], *size))
    for at, places in cells(tuple(size), dy.shape[2:]):
        for p in places:
            dx[(..., *p)] += dy[(..., *at)] / len(places)
    return dx


def greatest(x: np.ndarray, size: list[int]) -> tuple[np.ndarray, np.ndarray]:
    y, place = np.zeros((*x.shape[:2], *size)), np.zeros((*x.shape[:2], *size), int)
    for at, places in cells(x.shape[2:], tuple(size)):
        for lead in np.ndindex(x.shape[:2]):
            values = [x[(*lead, *p)] for p in places]
            best = next((i for i, v in enumerate(values) if math.isnan(v)), None)
            best = values.index(max(values)) if best is None else best
            y[(*lead, *at)] = values[best]
            place[(*lead, *at)] = np.ravel_multi_index(places[best], x.shape[2:])
    return y, place


SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 4, 5), (8, 10)),
    ((2, 1, 5, 7), (3, 4)),
    ((1, 2, 3, 4), (7, 2)),
    ((3, 2, 6), (9,)),
    ((2, 1, 2, 3, 2), (4, 3, 1)),
    ((1, 1, 1, 1), (3, 2)),
    ((2, 2, 5, 4), (5, 4)),
    ((0, 2, 3, 3), (2, 5)),
]
FILTERS: list[dict[str, Any]] = [
    {"mode": "nearest-exact"},
    {"mode": "linear", "corners": True},
    {"mode": "cubic"},
    {"mode": "cubic", "corners": True},
    {"mode": "linear", "widened": True},
    {"mode": "cubic", "widened": True},
    {"mode": "cubic", "widened": True, "corners": True},
]
#: The sizes of one axis, and the ratio of a scale that does not divide them.
LINES: list[tuple[int, int, tuple[int, ...]]] = [
    (1, 3, ()), (5, 1, ()), (2, 7, ()), (9, 4, ()), (7, 18, (10, 27)), (9, 2, (10, 3)),
]  # fmt: skip
RESAMPLED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *((shape, size, {"mode": mode}) for shape, size in SIZES for mode in ("nearest", "linear")),
    *(((2, 1, 4, 5), (7, 3), how) for how in FILTERS),
    *(((1, 2, n), (m,), how | ({"ratio": ratio} if ratio else {})) for n, m, ratio in LINES for how in FILTERS
      if not (ratio and how.get("corners"))),
]  # fmt: skip
POOLS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 7, 5), (3, 2)),
    ((2, 1, 4, 6), (2, 3)),
    ((1, 2, 3, 2), (5, 3)),
    ((3, 2, 9), (4,)),
    ((1, 2, 3, 4, 2), (2, 3, 1)),
    ((1, 1, 38, 31), (3, 2)),
    ((2, 2, 1, 1), (1, 1)),
    ((0, 2, 3, 3), (2, 2)),
]
TIES = np.array([[[[1.0, 1.0, 0.0], [1.0, 2.0, 2.0], [2.0, 2.0, math.nan]]]])

SAMPLES: dict[str, list[Sample]] = {
    "interpolate": [
        Sample([Spec(shape)], {"size": size, **attrs}, reference=resized) for shape, size, attrs in RESAMPLED
    ],
    "interpolate_grad": [
        Sample([Spec((*shape[:2], *size))], {"size": shape[2:], **attrs}, reference=resized_back)
        for shape, size, attrs in RESAMPLED
    ],
    "adaptive_avgpool": [Sample([Spec(shape)], {"size": size}, reference=averaged) for shape, size in POOLS],
    "adaptive_avgpool_grad": [
        Sample([Spec((*shape[:2], *size))], {"size": shape[2:]}, reference=shared) for shape, size in POOLS
    ],
    "adaptive_maxpool": [
        Sample([Spec(shape, distinct=True)], {"size": size}, reference=greatest) for shape, size in POOLS
    ]
    + [Sample([TIES], {"size": (2, 2)}, outputs=(), reference=greatest)],
}
