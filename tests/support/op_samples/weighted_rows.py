"""Samples of weighted sums of rows, of rows that are put in order, of elements that are replaced, and of suppress."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def summed(table: np.ndarray, ids: np.ndarray, weight: np.ndarray, lead: int) -> np.ndarray:
    y = np.zeros((*ids.shape[:-1], table.shape[-1]))
    for at in np.ndindex(ids.shape):
        if weight[at] != 0:
            y[at[:-1]] += weight[at] * table[(*at[:lead], ids[at])]
    return y


def products(table: np.ndarray, ids: np.ndarray, dy: np.ndarray, lead: int) -> np.ndarray:
    y = np.zeros(ids.shape)
    for at in np.ndindex(ids.shape):
        y[at] = table[(*at[:lead], ids[at])] @ dy[at[:-1]]
    return y


#: table, ids, number of shared axes
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5, 3), (4, 2), 0), ((3, 7), (2, 3, 1), 0), ((2, 4, 3), (2, 5, 4), 1), ((2, 3, 2, 1), (2, 3, 2, 3), 2),
    ((6, 9), (0, 2), 0),
]  # fmt: skip
#: A row of weight 0 is not read: neither an infinity nor an id that does not exist counts.
UNREAD = Sample(
    [np.array([[1.0, 2.0], [np.inf, np.nan]]), np.array([[0, 1], [7, 0]]), np.array([[0.5, 0.0], [0.0, 2.0]])],
    {"lead": 0}, differentiable=(), reference=summed,
)  # fmt: skip


def _ids(table: tuple[int, ...], ids: tuple[int, ...], lead: int) -> Spec:
    return Spec(ids, "int32", 0, table[lead] - 1)


def in_order(ids: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    parts, length = ids.shape
    places: list[list[int]] = [[] for _ in range(parts * count)]
    lost = []
    for at in range(parts * length):
        id = int(ids.reshape(-1)[at])
        (places[at // length * count + id] if 0 <= id < count else lost).append(at)
    starts = [sum(map(len, places[:k])) for k in range(len(places) + 1)]
    return np.array([*(at for each in places for at in each), *lost], int), np.array(starts)


def weighted(rows: np.ndarray, places: np.ndarray, starts: np.ndarray, weight: np.ndarray, **attrs: Any) -> Any:
    taps, keys = attrs["taps"], len(starts) - 1
    y = np.zeros((keys, rows.shape[1]))
    for k in range(keys):
        for i in places[starts[k] : starts[k + 1]]:
            y[k] += rows[i // taps] * weight[i]
    return y


def combined(rows: np.ndarray, places: np.ndarray, starts: np.ndarray, *x: np.ndarray, how: str, parts: int) -> Any:
    count = len(starts) - 1
    y = x[0].copy() if x else np.zeros((count, rows.shape[1]), rows.dtype)
    for k in range(count):
        for i in places[starts[k] : starts[k + 1]]:
            y[k] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[how](y[k], rows[i])
    if starts[-1] < len(places) and y.dtype.kind == "f":
        for i in places[starts[-1] :]:
            y[i // (len(places) // parts) * (count // parts) :][: count // parts] = np.nan
    return y


def _ordered(shape: tuple[int, int], count: int, low: int = 0) -> list[np.ndarray]:
    ids = np.random.default_rng(4).integers(low, count, shape)
    return [part.astype(np.int32) for part in in_order(ids, count)]


def last_places(index: np.ndarray, axis: int, count: int, lost: int | None = None) -> np.ndarray:
    y = np.full((*index.shape[:axis], count, *index.shape[axis + 1 :]), -1, np.int32)
    wrong = ((index < 0) | (index >= count)).any(axis)
    for at in np.ndindex(index.shape):
        if 0 <= index[at] < count:
            y[(*at[:axis], index[at], *at[axis + 1 :])] = at[axis]
    return y if lost is None else np.where(np.expand_dims(wrong, axis), lost, y).astype(np.int32)


def put_last(src: np.ndarray, index: np.ndarray, *x: np.ndarray, axis: int, count: int) -> np.ndarray:
    last = last_places(index, axis, count, -2)
    y = np.where(last >= 0, np.take_along_axis(src, np.maximum(last, 0), axis), x[0] if x else 0).astype(src.dtype)
    return np.where(last == -2, np.nan, y) if y.dtype.kind == "f" else y


def taken(src: np.ndarray, places: np.ndarray, *x: np.ndarray, axis: int) -> np.ndarray:
    y = x[0].copy() if x else np.zeros(places.shape, src.dtype)
    for at in np.ndindex(places.shape):
        place = places[at]
        if place >= 0:
            y[at] = src[(*at[:axis], place, *at[axis + 1 :])] if place < src.shape[axis] else np.nan
    return y


def given(dy: np.ndarray, index: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
    y = np.zeros(index.shape, dy.dtype)
    for at in np.ndindex(index.shape):
        there = (*at[:axis], index[at], *at[axis + 1 :])
        if not 0 <= index[at] < dy.shape[axis] or places[there] >= index.shape[axis]:
            y[at] = np.nan
        elif places[there] == at[axis]:
            y[at] = dy[there]
    return y


def _given(shape: tuple[int, ...], axis: int, count: int, low: int) -> Sample:
    index = np.random.default_rng(5).integers(low, count, shape).astype(np.int32)
    places = last_places(index, axis, count, shape[axis])
    return Sample([Spec(places.shape), index, places], {"axis": axis}, (), given, ())


def left(overlap: np.ndarray, limit: float) -> np.ndarray:
    """What suppress leaves."""
    over = overlap > limit
    keep = np.zeros(over.shape[:-1], bool)
    for line in np.ndindex(over.shape[:-2]):
        stay: list[int] = []
        for i in range(over.shape[-1]):
            if not any(over[(*line, j, i)] for j in stay):
                stay.append(i)
        keep[(*line, stay)] = True
    return keep


SAMPLES: dict[str, list[Sample]] = {
    "suppress": [
        Sample([Spec(shape, low=0, high=1, distinct=True)], {"limit": limit}, reference=left)
        for shape, limit in (
            *(((*lead, n, n), 0.7) for lead, n in (((), 5), ((3,), 40), ((2, 2), 7), ((), 1), ((0,), 4), ((2,), 0))),
            ((70, 70), 0.95),
        )
    ],
    "scatter_last": [
        Sample([Spec(src), Spec(src, "int32", low, count - 1), *x], {"axis": axis, "count": count}, (), put_last, ())
        for src, low, axis, count, x in (
            ((3, 7), 0, 1, 5, [Spec((3, 5))]),
            ((3, 70), -1, 1, 90, []),
            ((6, 4, 2), 0, 0, 3, [Spec((3, 4, 2))]),
        )
    ],
    "last_places": [
        Sample([Spec(index, "int32", low, 4)], {"axis": axis, "count": 5, "lost": 99}, (), last_places, ())
        for index, low, axis in (((3, 7), 0, 1), ((4, 80), -1, 1), ((6, 4), 0, 0))
    ],
    "take_last": [
        Sample([Spec(src), Spec(places, "int32", -1, high), *x], {"axis": axis}, (), taken, ())
        for src, places, high, axis, x in (
            ((3, 7), (3, 5), 6, 1, [Spec((3, 5))]),
            ((3, 70), (3, 90), 70, 1, []),
            ((6, 4, 2), (3, 4, 2), 5, 0, [Spec((3, 4, 2))]),
        )
    ],
    "give_last": [_given((3, 7), 1, 5, 0), _given((4, 80), 1, 60, -1), _given((6, 4, 2), 0, 3, 0)],
    "weighted_rows": [
        *(
            Sample([Spec(table), _ids(table, ids, lead), Spec(ids)], {"lead": lead}, reference=summed)
            for table, ids, lead in SHAPES
        ),
        UNREAD,
    ],
    "weighted_rows_dot": [
        Sample(
            [Spec(table), _ids(table, ids, lead), Spec((*ids[:-1], table[-1]))],
            {"lead": lead},
            reference=products,
        )
        for table, ids, lead in SHAPES
    ],
    "row_order": [
        Sample([Spec(shape, dtype, low, count - 1)], {"count": count}, reference=in_order)
        for shape, dtype, low, count in (
            ((1, 9), "int32", 0, 4),
            ((3, 40), "int64", -1, 5),
            ((1, 300), "uint8", 0, 200),
            ((2, 1), "int32", 0, 1),
        )
    ],
    "ordered_rows": [
        Sample(
            [Spec((3, 4)), np.array([2, 0, 1], np.int32), np.arange(4, dtype=np.int32), Spec((3, 4))],
            {"how": "prod", "parts": 1},
            (),
            combined,
            (),
        ),
        Sample(
            [Spec((9, 3)), np.roll(np.arange(9, dtype=np.int32), 4), np.array([0, 1, 1, *range(2, 10)], np.int32)],
            {"how": "sum", "parts": 1},
            (),
            combined,
            (),
        ),
        Sample(
            [Spec((40, 8), "int32", -9, 9), *_ordered((2, 20), 4, -1)], {"how": "sum", "parts": 2}, (), combined, ()
        ),
        Sample([Spec((40, 1)), *_ordered((2, 20), 4, -1)], {"how": "sum", "parts": 2}, (), combined, ()),
        Sample(
            [Spec((10, 3)), *_ordered((1, 40), 4), Spec((40,))], {"how": "sum", "parts": 1, "taps": 4}, (), weighted, ()
        ),
        *(
            Sample([Spec((90, 4)), *_ordered((1, 90), 3), Spec((3, 4))], {"how": how, "parts": 1}, (), combined, ())
            for how in ("max", "min")
        ),
    ],
}
