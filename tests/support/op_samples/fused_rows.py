"""Samples of ops with pointwise neighbours in their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _scores(shape: tuple[int, ...], bias: tuple[int, ...], axis: int) -> Sample:
    """softmax(x * s + bias) * x"""

    def reference(x: Any, s: Any, bias: Any, **attrs: Any) -> Any:
        return _softmax(x * s + bias, axis) * x

    body = (("mul", (0, 1), ()), ("add", (3, 2), ()), ("softmax", (4,), (("axis", axis),)), ("mul", (5, 0), ()))
    return Sample([Spec(shape), Spec(()), Spec(bias)], {"body": body}, differentiable=(), reference=reference)


def _mean_square(shape: tuple[int, ...], shift: tuple[int, ...], over: tuple[int, ...], keep: bool) -> Sample:
    """mean((x - shift)^2) + late"""
    rest = tuple(1 if a in over else n for a, n in enumerate(shape) if keep or a not in over)

    def reference(x: Any, shift: Any, late: Any, **attrs: Any) -> Any:
        return np.mean(np.square(x - shift), axis=over, keepdims=keep) + late

    attrs = (("keep", keep), ("over", over))
    body = (("sub", (0, 1), ()), ("mul", (3, 3), ()), ("mean", (4,), attrs), ("add", (5, 2), ()))
    return Sample([Spec(shape), Spec(shift), Spec(rest)], {"body": body}, differentiable=(), reference=reference)


def _turned(shape: tuple[int, ...], perm: tuple[int, ...], row: tuple[int, ...], late: tuple[int, ...]) -> Sample:
    """transpose(x * row) + late"""

    def reference(x: Any, row: Any, late: Any, **attrs: Any) -> Any:
        return np.transpose(x * row, perm) + late

    body = (("mul", (0, 1), ()), ("transpose", (3,), (("perm", perm),)), ("add", (4, 2), ()))
    return Sample([Spec(shape), Spec(row), Spec(late)], {"body": body}, differentiable=(), reference=reference)


def _running(shape: tuple[int, ...], axis: int) -> Sample:
    """cumsum(x * y) - y"""
    attrs = (("axis", axis), ("reverse", False))

    def reference(x: Any, y: Any, **attrs: Any) -> Any:
        return np.cumsum(x * y, axis=axis) - y

    body = (("mul", (0, 1), ()), ("cumsum", (2,), attrs), ("sub", (3, 1), ()))
    return Sample([Spec(shape), Spec(shape)], {"body": body}, differentiable=(), reference=reference)


SAMPLES: dict[str, list[Sample]] = {
    "fused_rows": [
        _scores((3, 5, 7), (5, 7), 2),
        _scores((2, 3, 4, 8), (2, 1, 1, 8), 3),
        _scores((2, 3, 4, 8), (1, 1, 4, 8), 3),
        _scores((2, 3, 4, 8), (3, 1, 1), 3),
        _scores((4, 6, 8), (6, 1), 1),
        _scores((4, 6, 8), (4, 1, 8), 1),
        _scores((2, 700), (700,), 1),
        _scores((0, 4), (4,), 1),
        _mean_square((6, 40), (6, 1), (1,), False),
        _mean_square((6, 40), (40,), (1,), True),
        _mean_square((6, 40), (1, 40), (0,), False),
        _mean_square((2, 3, 4, 5), (1, 3, 1, 1), (2, 3), True),
        _mean_square((2, 3, 4, 5), (4, 1), (0, 2, 3), False),
        _mean_square((2, 3, 4, 5), (2, 1, 1, 5), (1, 2), False),
        _mean_square((3, 9000), (), (1,), False),
        _mean_square((3000, 5), (5,), (0,), False),
        _mean_square((70, 90), (70, 1), (0, 1), False),
        _turned((33, 40), (1, 0), (40,), (33,)),
        _turned((33, 40), (1, 0), (33, 1), (40, 1)),
        _turned((2, 3, 4), (2, 0, 1), (3, 1), (4, 1, 3)),
        _turned((2, 64, 96), (0, 2, 1), (2, 1, 1), (1, 96, 1)),
        _running((4, 70), 1),
        _running((70, 4), 0),
    ]
}
