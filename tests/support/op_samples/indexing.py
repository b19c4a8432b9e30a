"""Samples of ops on indices along an axis, against loops over elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def gathered(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    y = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        y[at] = x[(*at[:axis], index[at], *at[axis + 1 :])]
    return y


def scattered(src: np.ndarray, index: np.ndarray, axis: int, count: int) -> np.ndarray:
    y = np.zeros((*src.shape[:axis], count, *src.shape[axis + 1 :]), src.dtype)
    for at in np.ndindex(src.shape):
        y[(*at[:axis], index[at], *at[axis + 1 :])] += src[at]
    return y


def line_order(line: list[float], largest: bool) -> list[int]:
    """Indices in order, ties by index, nan as greatest."""

    def key(i: int) -> Any:
        value = line[i]
        known = (1, 0.0) if math.isnan(value) else (0, value)
        return ((-known[0], -known[1]) if largest else known, i)

    return sorted(range(len(line)), key=key)


def top(x: np.ndarray, axis: int, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    lines = np.moveaxis(x, axis, -1)
    places = np.zeros((*lines.shape[:-1], k), int)
    for at in np.ndindex(lines.shape[:-1]):
        places[at] = line_order(list(lines[at]), largest)[:k]
    return np.moveaxis(np.take_along_axis(lines, places, -1), -1, axis), np.moveaxis(places, -1, axis)


def first_place(best: Callable[[list[Any]], Any]) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, axis: int) -> np.ndarray:
        lines = np.moveaxis(x, axis, -1)
        places = np.zeros(lines.shape[:-1], int)
        for at in np.ndindex(places.shape):
            places[at] = list(lines[at]).index(best(list(lines[at])))
        return places

    return reference


TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [5.0, 1.0, 0.0]])
NANS = np.array([[1.0, math.nan, 3.0, math.nan], [math.inf, -math.inf, 0.0, -0.0]])
# (shape, size of the axis in the index, axis)
PLACES: list[tuple[tuple[int, ...], int, int, str]] = [
    ((4, 5), 3, 1, "int32"),
    ((4, 5), 7, 0, "int64"),
    ((6,), 9, 0, "uint8"),
    ((2, 3, 4), 5, 1, "int32"),
    ((2, 3, 4), 1, 2, "int32"),
    ((3, 1), 2, 1, "int32"),
    ((3, 4), 0, 1, "int32"),
    ((0, 4), 2, 1, "int32"),
]


def _other(shape: tuple[int, ...], size: int, axis: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


SAMPLES: dict[str, list[Sample]] = {
    "gather": [
        Sample(
            [Spec(shape), Spec(_other(shape, size, axis), dtype, 0, shape[axis] - 1)],
            {"axis": axis},
            reference=gathered,
        )
        for shape, size, axis, dtype in PLACES
    ]
    + [Sample([Spec((3, 4), "int32", -9, 9), Spec((3, 2), "int32", 0, 3)], {"axis": 1}, reference=gathered)],
    "scatter_add": [
        Sample(
            [Spec(_other(shape, size, axis)), Spec(_other(shape, size, axis), dtype, 0, shape[axis] - 1)],
            {"axis": axis, "count": shape[axis]},
            reference=scattered,
        )
        for shape, size, axis, dtype in PLACES
    ]
    + [
        Sample(
            [Spec((3, 4), "int32", -9, 9), Spec((3, 4), "int32", 0, 1)], {"axis": 1, "count": 2}, reference=scattered
        )
    ],
    "argmin": [
        Sample([x], {"axis": a}, reference=first_place(min))
        for x, a in (
            (TIES, 1),
            (TIES, 0),
            (Spec((5,)), 0),
            (Spec((2, 3, 4)), 1),
            (Spec((3, 4), "int32", 0, 3), 1),
            (Spec((0, 3)), 1),
            (Spec((3, 1)), 1),
        )
    ],
    "topk": [
        Sample([Spec(shape, distinct=True)], {"axis": axis, "k": k, "largest": largest}, reference=top)
        for shape, axis, k in (
            ((4, 5), 1, 2),
            ((4, 5), 0, 4),
            ((7,), 0, 1),
            ((2, 3, 4), 1, 3),
            ((3, 1), 1, 1),
            ((0, 3), 1, 2),
        )
        for largest in (True, False)
    ]
    + [
        Sample([x], {"axis": 1, "k": k, "largest": largest}, outputs=(), reference=top)
        for x in (TIES, NANS, Spec((5, 6), "int32", 0, 3), Spec((2, 9), "uint8", 0, 255))
        for k in (1, 3)
        for largest in (True, False)
    ],
}
