"""Samples of ops on indices along an axis, against loops over elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def each(index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The index of each element of tensors that end as ``shape`` does, given one of whole rows or of elements."""
    rest = shape[index.ndim :]
    return np.array([np.full(rest, i) for i in index.flat], int).reshape(*index.shape, *rest)


def gathered(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    index = each(index, x.shape)
    y = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        y[at] = x[(*at[:axis], index[at], *at[axis + 1 :])]
    return y


def parts(x: np.ndarray, ids: np.ndarray, axis: int) -> np.ndarray:
    y = np.zeros((*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]), x.dtype)
    for at in np.ndindex(ids.shape):
        for before in np.ndindex(x.shape[:axis]):
            y[(*before, *at)] = x[(*before, ids[at])]
    return y


def joint(i: np.ndarray, j: np.ndarray, rows: int, columns: int) -> np.ndarray:
    inside = np.zeros((rows, columns), int)
    inside.reshape(-1)[:] = range(rows * columns)
    i, j = np.broadcast_arrays(i, j)
    known = [0 <= a < rows and 0 <= b < columns for a, b in zip(i.flat, j.flat)]
    return np.array([inside[a, b] if k else -1 for a, b, k in zip(i.flat, j.flat, known)], int).reshape(i.shape)


def scattered(src: np.ndarray, index: np.ndarray, axis: int, count: int) -> np.ndarray:
    y = np.zeros((*src.shape[:axis], count, *src.shape[axis + 1 :]), src.dtype)
    index = each(index, src.shape)
    for at in np.ndindex(src.shape):
        y[(*at[:axis], index[at], *at[axis + 1 :])] += src[at]
    return y


def combined(x: np.ndarray, src: np.ndarray, index: np.ndarray, axis: int, how: str, lost: int = 0) -> np.ndarray:
    y, index = x.copy(), each(index, src.shape)
    for at in np.ndindex(src.shape):
        to = (*at[:axis], index[at], *at[axis + 1 :])
        if 0 <= index[at] < x.shape[axis]:
            y[to] = {"prod": lambda a, b: a * b, "max": max, "min": min}[how](y[to], src[at])
        elif lost:
            y[(*at[:axis], slice(None), *at[axis + 1 :])] = lost
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
        places[at] = line_order(lines[at].tolist(), largest)[:k]
    return np.moveaxis(np.take_along_axis(lines, places, -1), -1, axis), np.moveaxis(places, -1, axis)


def in_order(x: np.ndarray, axis: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    return top(x, axis, x.shape[axis], descending)


def put_back(y: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    x = np.zeros(y.shape)
    for at in np.ndindex(y.shape):
        x[(*at[:axis], index[at], *at[axis + 1 :])] = y[at]
    return x


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
# (shape, axis, shape of an index of whole rows)
ROWS: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
    ((2, 5, 3), 1, (2, 4)),
    ((5, 2, 2), 0, (7,)),
    ((2, 1, 4, 3), 2, (2, 1, 9)),
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
    + [Sample([Spec((3, 4), "int32", -9, 9), Spec((3, 2), "int32", 0, 3)], {"axis": 1}, reference=gathered)]
    + [
        Sample([Spec(shape), Spec(ids, "int32", 0, shape[axis] - 1)], {"axis": axis}, reference=gathered)
        for shape, axis, ids in ROWS
    ],
    "take": [
        Sample([Spec(shape), Spec(ids, dtype, 0, shape[axis] - 1)], {"axis": axis}, reference=parts)
        for shape, axis, ids, dtype in (
            ((4, 5), 1, (3,), "int32"),
            ((2, 3, 4), 1, (2, 5), "int64"),
            ((2, 3, 4), 2, (), "uint8"),
            ((3, 5), 0, (7,), "int32"),
            ((2, 3, 33), 1, (1,), "int32"),
            ((0, 4), 1, (2,), "int32"),
            ((3, 4), 1, (0, 2), "int32"),
            ((2, 2, 3, 2), 2, (4,), "int32"),
        )
    ]
    + [Sample([Spec((3, 4), "int32", -9, 9), Spec((2,), "int32", 0, 3)], {"axis": 1}, reference=parts)],
    "joint_index": [
        Sample([Spec(i, dtype, -1, 3), Spec(j, dtype, -1, 5)], {"rows": 3, "columns": 5}, reference=joint)
        for i, j, dtype in (
            ((6,), (6,), "int32"),
            ((4, 1), (3,), "int64"),
            ((2, 3), (), "int32"),
            ((0,), (1,), "int32"),
        )
    ],
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
    ]
    + [
        Sample(
            [Spec((*ids, *shape[axis + 1 :])), Spec(ids, "int32", 0, shape[axis] - 1)],
            {"axis": axis, "count": shape[axis]},
            reference=scattered,
        )
        for shape, axis, ids in ROWS
    ],
    "scatter_reduce": [
        Sample(
            [
                Spec(shape, distinct=how != "prod"),
                Spec(_other(shape, size, axis), low=-1.9, high=2.1, distinct=how != "prod"),
                Spec(_other(shape, size, axis), dtype, 0, shape[axis] - 1),
            ],
            {"axis": axis, "how": how},
            reference=combined,
        )
        for how in ("prod", "max", "min")
        for shape, size, axis, dtype in PLACES
    ]
    + [  # zeros among the factors: none, one, and several of one element
        Sample(
            [
                np.array([[2.0, 0.0, 3.0, 0.5]]),
                np.array([[0.0, 1.5, 0.0, 4.0, 0.0, -2.0]]),
                np.array([[0, 0, 1, 2, 3, 3]]),
            ],
            {"axis": 1, "how": "prod"},
            reference=combined,
        ),
        Sample(
            [Spec((3, 4), "int32", -9, 9), Spec((3, 7), "int32", -9, 9), Spec((3, 7), "int32", -1, 4)],
            {"axis": 1, "how": "min"},
            reference=combined,
        ),
        Sample(
            [np.full((3, 4), -1, np.int32), Spec((3, 7), "int32", 0, 6), Spec((3, 7), "int32", -1, 3)],
            {"axis": 1, "how": "max", "lost": 7},
            reference=combined,
        ),
        Sample(
            [Spec((2, 70), "uint8", 0, 9), Spec((5, 70), "uint8", 0, 9), Spec((5, 70), "int64", 0, 1)],
            {"axis": 0, "how": "prod"},
            reference=combined,
        ),
        Sample(  # more indices than are scanned for each element
            [Spec((2, 5)), Spec((2, 70), distinct=True), Spec((2, 70), "int32", 0, 3)],
            {"axis": 1, "how": "max"},
            reference=combined,
        ),
    ]
    + [
        Sample(
            [
                Spec(shape, distinct=how != "prod"),
                Spec((*ids, *shape[axis + 1 :]), low=-1.9, high=2.1, distinct=how != "prod"),
                Spec(ids, "int32", 0, shape[axis] - 1),
            ],
            {"axis": axis, "how": how},
            reference=combined,
        )
        for how, (shape, axis, ids) in zip(("prod", "max", "min"), ROWS)
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
    "sort": [
        Sample([Spec(shape, distinct=True)], {"axis": axis, "descending": descending}, reference=in_order)
        for shape, axis in (((4, 5), 1), ((4, 5), 0), ((7,), 0), ((2, 8, 3), 1), ((3, 1), 1), ((0, 3), 1), ((3, 0), 1))
        for descending in (True, False)
    ]
    + [
        Sample([x], {"axis": 1, "descending": descending}, outputs=(), reference=in_order)
        for x in (TIES, NANS, Spec((5, 33), "int32", 0, 3), Spec((70, 9), "uint8", 0, 255))
        for descending in (True, False)
    ],
    "unsort": [
        Sample(
            [Spec(shape), np.argsort(np.random.default_rng(axis).random(shape), axis).astype(dtype)],
            {"axis": axis},
            reference=put_back,
        )
        for shape, axis, dtype in (
            ((4, 5), 1, "int32"),
            ((4, 5), 0, "int64"),
            ((7,), 0, "uint8"),
            ((2, 8, 3), 1, "int32"),
            ((0, 3), 1, "int32"),
        )
    ],
}
