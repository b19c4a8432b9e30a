"""Samples of pools to a size and of interpolation, one pixel at a time."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
from op_samples.sample import Sample, Spec


def neighbours(i: int, before: int, after: int, mode: str) -> list[tuple[int, float]]:
    """Which old pixels make the new pixel i of an axis, and by how much."""
    if mode == "nearest":
        return [(math.floor(Fraction(i * before, after)), 1.0)]
    source = max(Fraction(2 * i + 1, 2) * before / after - Fraction(1, 2), Fraction(0))
    low = math.floor(source)
    weight = float(source - low)
    return [(low, 1 - weight), (min(low + 1, before - 1), weight)]


def resized(x: np.ndarray, size: list[int], mode: str) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *size))
    for at in product(*map(range, size)):
        near = (neighbours(i, n, m, mode) for i, n, m in zip(at, x.shape[2:], size))
        for taps in product(*near):
            y[(..., *at)] += x[(..., *(t for t, _ in taps))] * math.prod(w for _, w in taps)
    return y


def resized_back(dy: np.ndarray, size: list[int], mode: str) -> np.ndarray:
    dx = np.zeros((*dy.shape[:2], *size))
    for at in product(*map(range, dy.shape[2:])):
        near = (neighbours(i, n, m, mode) for i, n, m in zip(at, size, dy.shape[2:]))
        for taps in product(*near):
            dx[(..., *(t for t, _ in taps))] += dy[(..., *at)] * math.prod(w for _, w in taps)
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
POOLS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 7, 5), (3, 2)),
    ((2, 1, 4, 6), (2, 3)),
    ((1, 2, 3, 2), (5, 3)),
    ((3, 2, 9), (4,)),
    ((1, 2, 3, 4, 2), (2, 3, 1)),
    ((2, 2, 1, 1), (1, 1)),
    ((0, 2, 3, 3), (2, 2)),
]
TIES = np.array([[[[1.0, 1.0, 0.0], [1.0, 2.0, 2.0], [2.0, 2.0, math.nan]]]])

SAMPLES: dict[str, list[Sample]] = {
    "interpolate": [
        Sample([Spec(shape)], {"size": size, "mode": mode}, reference=resized)
        for shape, size in SIZES
        for mode in ("nearest", "linear")
    ],
    "interpolate_grad": [
        Sample([Spec((*shape[:2], *size))], {"size": shape[2:], "mode": mode}, reference=resized_back)
        for shape, size in SIZES
        for mode in ("nearest", "linear")
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
