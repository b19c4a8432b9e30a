"""Samples of reductions, softmax and matrix products, against sums written out or numpy's einsum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (0, 1)),
    ((3, 4), (1,)),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (1,)),
    ((5,), (0,)),
    ((), ()),
    ((3, 1), (1,)),
    ((2, 3), ()),
    ((0, 3), (1,)),
    ((2, 3, 2, 2), (2, 3)),
]


def over_lines(function: Callable[[Sequence[float]], float]) -> Callable[..., np.ndarray]:
    """A reference from a function of a list of numbers."""

    def reference(x: np.ndarray, over: list[int], keep: bool) -> np.ndarray:
        lines = np.moveaxis(x, over, range(-len(over), 0)) if over else x[..., None]
        kept = lines.shape[: x.ndim - len(over)]
        count = int(np.prod(lines.shape[len(kept) :], dtype=int))
        rows = lines.reshape(int(np.prod(kept, dtype=int)), count)
        values = np.array([function(list(row)) for row in rows]).reshape(kept)
        return np.expand_dims(values, tuple(over)) if keep else values

    return reference


def reductions(function: Callable[[Sequence[float]], float], distinct: bool = False) -> list[Sample]:
    return [
        Sample([Spec(shape, distinct=distinct)], {"over": over, "keep": keep}, reference=over_lines(function))
        for shape, over in CASES
        for keep in (False, True)
    ]


TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [5.0, 1.0, 0.0]])


FAR = np.array([[1.0, math.nan, 3.0], [-math.inf, 0.0, math.inf], [-math.inf, -math.inf, -math.inf], [-0.0, 0.0, -0.0]])


def corners(ufunc: Callable[..., Any]) -> list[Sample]:
    """Infinities and nan, which wins; u8 and i8 at their limits."""
    bounds = [np.array([[0, 255, 7]], "uint8"), np.array([[-128, 127, 0]], "int8"), np.array([[2**62, -(2**62)]])]
    return [
        Sample([x], {"over": (1,), "keep": False}, outputs=(), reference=lambda x, over, keep: ufunc(x, 1))
        for x in (FAR, TIES, *bounds)
    ]


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def along(reference: Callable[..., Any]) -> list[Sample]:
    shapes = [((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 3, 4), 1), ((2, 1), 1), ((0, 3), 1)]
    made = [Sample([Spec(s)], {"axis": a}, reference=reference) for s, a in shapes]
    return [*made, Sample([np.array([[900.0, -900.0, 0.0], [-math.inf, 0.0, 1.0]])], {"axis": 1}, outputs=())]


def graded(reference: Callable[..., Any]) -> list[Sample]:
    shapes = [((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 3, 4), 1), ((2, 1), 1), ((0, 3), 1), ((2, 40), 1)]
    return [Sample([Spec(s, low=-1, high=1), Spec(s)], {"axis": a}, reference=reference) for s, a in shapes]


def product(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    left, right = ("...ki" if transpose_a else "...ik"), ("...jk" if transpose_b else "...kj")
    return np.einsum(f"{left},{right}->...ij", a, b)


def products() -> list[Sample]:
    made = []
    for ta in (False, True):
        for tb in (False, True):
            for lead_a, lead_b in (((), ()), ((2,), ()), ((2, 3), (3,)), ((), (2,)), ((2, 1), (1, 3)), ((2, 2), ())):
                a = (*lead_a, 4, 3) if ta else (*lead_a, 3, 4)
                b = (*lead_b, 5, 4) if tb else (*lead_b, 4, 5)
                made.append(Sample([Spec(a), Spec(b)], {"transpose_a": ta, "transpose_b": tb}, reference=product))
    for a, b in (((0, 4), (4, 2)), ((3, 0), (0, 2)), ((1, 1), (1, 1)), ((2, 0, 4), (4, 3)), ((2, 3, 0), (0, 5))):
        made.append(Sample([Spec(a), Spec(b)], {"transpose_a": False, "transpose_b": False}, reference=product))
    return made


SAMPLES: dict[str, list[Sample]] = {
    "sum": [
        *reductions(math.fsum),
        Sample([Spec((3, 4), "int32", -9, 9)], {"over": (1,), "keep": False}, reference=over_lines(sum)),
        Sample([Spec((3, 4), "bool")], {"over": (0, 1), "keep": False}, reference=over_lines(sum)),
        Sample([Spec((3, 0))], {"over": (1,), "keep": False}, reference=over_lines(math.fsum)),
    ],
    "mean": reductions(lambda v: math.fsum(v) / len(v)),
    "max": [
        *reductions(max, distinct=True),
        *corners(np.max),
        Sample([TIES], {"over": (1,), "keep": False}, outputs=(), reference=over_lines(max)),
        Sample([Spec((3, 4), "int32", -9, 9)], {"over": (1,), "keep": False}, reference=over_lines(max)),
    ],
    "min": [
        *reductions(min, distinct=True),
        *corners(np.min),
        Sample([Spec((3, 4), "int32", -9, 9)], {"over": (0,), "keep": True}, reference=over_lines(min)),
    ],
    "argmax": [
        Sample(
            [x], {"axis": a}, reference=lambda x, axis: np.apply_along_axis(lambda v: list(v).index(max(v)), axis, x)
        )
        for x, a in ((TIES, 1), (TIES, 0), (Spec((5,)), 0), (Spec((2, 3, 4)), 1), (Spec((3, 4), "int32", 0, 3), 1))
    ],
    "logsumexp": [
        *reductions(lambda v: math.log(math.fsum(map(math.exp, v)))),
        Sample(
            [np.array([[-math.inf, -math.inf], [math.inf, 0.0], [900.0, 900.0]])],
            {"over": (1,), "keep": False},
            outputs=(),
            reference=lambda x, over, keep: np.array([-math.inf, math.inf, 900 + math.log(2)]),
        ),
    ],
    "softmax": along(softmax),
    "log_softmax": along(
        lambda x, axis: x - np.log(np.exp(x).sum(axis, keepdims=True)) if abs(x).max(initial=0) < 9 else None
    ),
    "softmax_grad": graded(lambda y, dy, axis: y * dy - y * (y * dy).sum(axis, keepdims=True)),
    "log_softmax_grad": graded(lambda y, dy, axis: dy - np.exp(y) * dy.sum(axis, keepdims=True)),
    "matmul": products(),
}

SAMPLES["softmax"][-1] = Sample(
    [np.array([[900.0, -900.0, 0.0], [-math.inf, 0.0, 0.0]])],
    {"axis": 1},
    outputs=(),
    reference=lambda x, axis: np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]),
)
