"""Samples of products, running sums and norms, against sums and products written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from op_samples.reduce import CASES, over_lines, reductions
from op_samples.sample import Sample, Spec


def others(x: np.ndarray, dy: np.ndarray, over: list[int]) -> np.ndarray:
    """dy times the product over all elements of the line but one."""
    result = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        line = tuple(slice(None) if axis in over else i for axis, i in enumerate(at))
        one = np.zeros(x.shape, bool)
        one[at] = True
        kept = tuple(0 if axis in over else i for axis, i in enumerate(at))
        result[at] = np.prod(x[line][~one[line]]) * dy[kept]
    return result


def running(x: np.ndarray, axis: int, reverse: bool, combined: Any = np.sum) -> np.ndarray:
    y = np.zeros(x.shape)
    n = x.shape[axis]
    for i in range(n):
        part = range(i, n) if reverse else range(i + 1)
        y[(slice(None),) * axis + (i,)] = combined(np.take(x, list(part), axis=axis), axis)
    return y


def multiplied(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    return running(x, axis, reverse, np.prod)


def recurring(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool, late: bool) -> np.ndarray:
    """The sum of the terms up to each element, each times the factors between."""
    y = np.zeros(a.shape)
    for at in np.ndindex(a.shape):
        line = (*at[:axis], slice(None), *at[axis + 1 :])
        factors, terms, i = a[line], b[line], at[axis]
        for j in range(i, a.shape[axis]) if reverse else range(i + 1):
            steps = range(i, j) if reverse else range(j + 1, i + 1)  # the elements that the term is carried into
            y[at] += terms[j] * math.prod(factors[k - late if not reverse else k + late] for k in steps)
    return y


def log_sums(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """The logarithms of sums of exponentials, by log1p of what is not the greatest."""

    def of_line(part: np.ndarray, along: int) -> np.ndarray:
        top = part.max(along, keepdims=True)
        found = np.exp(part - np.where(np.isfinite(top), top, 0.0)).sum(along, keepdims=True) - np.isfinite(top)
        return (top + np.log1p(found)).squeeze(along) if np.isfinite(top).all() else _infinite(part, along)

    return running(x, axis, reverse, of_line)


def _infinite(part: np.ndarray, along: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.logaddexp.reduce(part, along)


def log_sums_back(x: np.ndarray, y: np.ndarray, dy: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """Each dy times the element's share of that sum, for any y."""
    dx = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        line, i = (*at[:axis], slice(None), *at[axis + 1 :]), at[axis]
        for t in range(i + 1) if reverse else range(i, x.shape[axis]):
            dx[at] += dy[line][t] * math.exp(x[at] - y[line][t])
    return dx


def length(x: np.ndarray, over: list[int], keep: bool, p: float) -> np.ndarray:
    return over_lines(lambda line: math.fsum(abs(v) ** p for v in line) ** (1 / p))(x, over, keep)


ZEROS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 5.0, 6.0]])


def norms(p: float) -> list[Sample]:
    made = [
        Sample([Spec(shape, gap=0.1)], {"over": over, "keep": keep, "p": p}, reference=length)
        for shape, over in CASES
        for keep in (False, True)
    ]
    far = Sample([np.array([[math.inf, 1.0], [math.nan, 1.0]])], {"over": (1,), "keep": False, "p": p}, outputs=())
    return [*made, Sample([Spec((2, 0))], {"over": (1,), "keep": False, "p": p}, reference=length), far]


CUMSUM: list[tuple[Any, int]] = [
    (Spec((3, 4)), 1),
    (Spec((3, 4)), 0),
    (Spec((5,)), 0),
    (Spec((2, 3, 4)), 1),
    (Spec((3, 1)), 1),
    (Spec((0, 3)), 1),
    (Spec((3, 0)), 1),
    (Spec((3, 4), "int32", -9, 9), 1),
    (Spec((3, 4), "bool"), 0),
]

SAMPLES: dict[str, list[Sample]] = {
    "prod": [
        *reductions(math.prod),
        Sample([ZEROS], {"over": (1,), "keep": False}, reference=over_lines(math.prod)),
        Sample([ZEROS], {"over": (0, 1), "keep": True}, reference=over_lines(math.prod)),
        Sample([Spec((2, 0))], {"over": (1,), "keep": False}, reference=over_lines(math.prod)),
        Sample([Spec((3, 4), "int32", -9, 9)], {"over": (1,), "keep": False}, reference=over_lines(math.prod)),
        Sample([Spec((3, 4), "bool")], {"over": (1,), "keep": False}, reference=over_lines(math.prod)),
    ],
    "prod_grad": [
        Sample(
            [x, Spec(tuple(1 if a in over else n for a, n in enumerate(shape)))],
            {"over": over},
            differentiable=(),
            reference=others,
        )
        for x, shape, over in (
            (Spec((3, 4)), (3, 4), (1,)),
            (Spec((3, 4)), (3, 4), (0, 1)),
            (Spec((2, 3, 2)), (2, 3, 2), (0, 2)),
            (ZEROS, (3, 3), (1,)),
            (ZEROS, (3, 3), (0,)),
            (Spec((5, 1)), (5, 1), (1,)),
            (Spec((2, 0)), (2, 0), (1,)),
            (Spec((2, 3)), (2, 3), ()),
        )
    ],
    "cumsum": [
        Sample([x], {"axis": axis, "reverse": reverse}, reference=running)
        for x, axis in CUMSUM
        for reverse in (False, True)
    ],
    "cumprod": [
        Sample([x], {"axis": axis, "reverse": reverse}, reference=multiplied)
        for x, axis in [*CUMSUM, (ZEROS, 0), (ZEROS, 1), (np.zeros((2, 3)), 1)]
        for reverse in (False, True)
    ],
    "recurrence": [
        Sample([x, y], {"axis": axis, "reverse": reverse, "late": late}, reference=recurring)
        for x, y, axis in (
            (Spec((3, 4)), Spec((3, 4)), 1),
            (Spec((5, 3)), Spec((5, 3)), 0),
            (Spec((2, 3, 34)), Spec((2, 3, 34)), 1),
            (Spec((35,)), Spec((35,)), 0),
            (Spec((18, 2)), Spec((18, 2)), 1),
            (Spec((3, 1)), Spec((3, 1)), 1),
            (Spec((3, 0)), Spec((3, 0)), 1),
            (ZEROS, Spec((3, 3)), 0),
        )
        for reverse in (False, True)
        for late in (False, True)
    ],
    "logcumsumexp": [
        Sample([x], {"axis": axis, "reverse": reverse}, reference=log_sums)
        for x, axis in CUMSUM[:7]
        for reverse in (False, True)
    ]
    + [
        Sample([Spec(shape)], {"axis": axis, "reverse": reverse}, differentiable=(), reference=log_sums)
        for shape, axis in (((35,), 0), ((18, 2), 1), ((2, 70, 3), 1), ((3, 40), 0))
        for reverse in (False, True)
    ],
    "logcumsumexp_grad": [
        Sample(
            [Spec(shape), Spec(shape), Spec(shape)],
            {"axis": axis, "reverse": reverse},
            differentiable=None if math.prod(shape) < 20 else (),
            reference=log_sums_back,
        )
        for shape, axis in (
            ((3, 4), 1),
            ((5, 3), 0),
            ((2, 3, 34), 1),
            ((35,), 0),
            ((3, 1), 1),
            ((3, 0), 1),
            ((40, 2), 0),
        )
        for reverse in (False, True)
    ],
    "norm": [
        *norms(2.0),
        *norms(1.0),
        *norms(3.0),
        *norms(1.5),
    ],
}
