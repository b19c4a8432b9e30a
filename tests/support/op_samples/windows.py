"""Samples of pools with places, of unfold and of fold, one window at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

Places = tuple[int, ...]


def windows(form: Any, count: Places) -> Iterator[tuple[Places, Places, Places]]:
    """Each window, each of its taps, and the element there."""
    edges = form.get("pad", (0,) * len(count))
    for at in product(*map(range, count)):
        for tap in product(*map(range, form["k"])):
            sizes = zip(at, form["stride"], tap, form["dilation"], edges)
            yield at, tap, tuple(i * s + t * d - p for i, s, t, d, p in sizes)


def counts(space: Places, form: Any) -> Places:
    edges, more = (form.get(name, (0,) * len(space)) for name in ("pad", "more"))
    sizes = zip(space, form["k"], form["stride"], form["dilation"], edges, more)
    return tuple((n + 2 * p + m - d * (k - 1) - 1) // s + 1 for n, k, s, d, p, m in sizes)


def greatest(x: np.ndarray, **form: Any) -> tuple[np.ndarray, np.ndarray]:
    count = counts(x.shape[2:], form)
    y, place = np.zeros((*x.shape[:2], *count)), np.full((*x.shape[:2], *count), -1)
    for lead in np.ndindex(x.shape[:2]):
        for at, _, where in windows(form, count):
            if not all(0 <= i < n for i, n in zip(where, x.shape[2:])):
                continue
            here, value = (*lead, *at), x[(*lead, *where)]
            if place[here] < 0 or value > y[here] or (math.isnan(value) and not math.isnan(y[here])):
                y[here], place[here] = value, np.ravel_multi_index(where, x.shape[2:])
    return y, place


def unfolded(x: np.ndarray, **form: Any) -> np.ndarray:
    count = counts(x.shape[2:], form)
    y = np.zeros((*x.shape[:2], *form["k"], *count))
    for at, tap, where in windows(form, count):
        y[(slice(None), slice(None), *tap, *at)] = x[(..., *where)]
    return y


def folded(y: np.ndarray, *, size: Places, **form: Any) -> np.ndarray:
    x = np.zeros((*y.shape[:2], *size))
    for at, tap, where in windows(form, y.shape[2 + len(size) :]):
        x[(..., *where)] += y[(slice(None), slice(None), *tap, *at)]
    return x


#: The image's shape, k, stride, dilation
WINDOWS: list[tuple[Places, Places, Places, Places]] = [
    ((2, 3, 6, 5), (2, 2), (2, 2), (1, 1)),
    ((1, 2, 7, 8), (3, 2), (1, 2), (2, 3)),
    ((2, 1, 9), (3,), (2,), (3,)),
    ((2, 1, 9), (2,), (3,), (4,)),
    ((1, 2, 3, 4, 4), (2, 1, 2), (1, 2, 1), (1, 1, 2)),
    ((2, 2, 3, 3), (3, 3), (1, 1), (1, 1)),
    ((1, 1, 8, 1), (4, 1), (4, 2), (1, 5)),
    ((0, 2, 4, 4), (2, 2), (1, 1), (2, 2)),
]
#: The same, pad, elements that a last window lacks
POOLS: list[tuple[Places, Places, Places, Places, Places, Places]] = [
    ((2, 2, 6, 5), (2, 2), (2, 2), (1, 1), (0, 0), (0, 1)),
    ((1, 2, 7, 8), (3, 2), (1, 2), (2, 3), (2, 0), (0, 0)),
    ((2, 1, 9), (3,), (2,), (3,), (3,), (1,)),
    ((1, 1, 3, 4, 4), (2, 1, 2), (1, 2, 1), (1, 1, 2), (1, 0, 1), (0, 0, 0)),
    ((0, 2, 4, 4), (2, 2), (1, 1), (2, 2), (1, 1), (0, 0)),
]
TIED = np.array([[[[1.0, 1.0, -np.inf, 2.0], [1.0, 1.0, np.nan, np.nan], [-np.inf] * 4]]])


def _form(k: Places, stride: Places, dilation: Places) -> dict[str, Places]:
    return {"k": k, "stride": stride, "dilation": dilation}


SAMPLES: dict[str, list[Sample]] = {
    "maxpool_places": [
        Sample([Spec(x, distinct=True)], _form(*form) | {"pad": pad, "more": more}, reference=greatest)
        for x, *form, pad, more in POOLS
    ]
    + [
        Sample([TIED], _form((2, 2), (1, 1), (1, 2)) | {"pad": (1, 1), "more": (0, 1)}, outputs=(), reference=greatest),
    ],
    "unfold": [Sample([Spec(x)], _form(*form), reference=unfolded) for x, *form in WINDOWS]
    + [Sample([Spec((2, 3, 5), "int32", -9, 9)], _form((2,), (1,), (1,)), reference=unfolded)],
    "fold": [
        Sample([Spec((*x[:2], *form[0], *counts(x[2:], _form(*form))))], _form(*form) | {"size": x[2:]},
               reference=folded)
        for x, *form in WINDOWS
    ],
}  # fmt: skip
