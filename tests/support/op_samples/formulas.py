"""Samples of the ops of ``elementwise/``'s formulas: angles, logarithms, rounding, gammas, more activations, bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from op_samples.elementwise import CORNERS, SHAPES, binary, each, logistic, unary
from op_samples.sample import Sample, Spec

INTEGERS = ("int32", "int64", "uint8", "int16", "int8", "uint16", "uint32", "uint64")


def _flat(reference: Callable[..., Any]) -> list[Sample]:
    """A step function: away from its steps, and on them."""
    steps = np.array([-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 7.75])
    return [*unary(reference, gap=0.1), Sample([steps], outputs=(), reference=reference)]


def _bits(reference: Callable[[int, int], int], low: int = -99) -> list[Sample]:
    def wrapped(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = np.broadcast_arrays(x, y)
        found = [reference(int(a), int(b)) for a, b in zip(x.flat, y.flat)]
        return np.array(found, object).reshape(x.shape).astype(np.int64).astype(x.dtype)

    made = [
        Sample([Spec(a, d, 0 if d[0] == "u" else -99, 99), Spec(b, d, max(low, 0) if d[0] == "u" else low, 99)],
               reference=wrapped)
        for d in INTEGERS for a, b in (SHAPES[0], SHAPES[1], SHAPES[4])
    ]  # fmt: skip
    return made


def _shifts(left: bool) -> list[Sample]:
    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits = 8 * x.dtype.itemsize
        found = []
        for a, b in zip(map(int, x), map(int, y)):
            by = b if 0 <= b < bits else bits
            value = (a << by if left else a >> by) % (1 << bits)
            found.append(value - (1 << bits) if x.dtype.kind == "i" and value >= 1 << (bits - 1) else value)
        return np.array(found, x.dtype)

    made = []
    for d in INTEGERS:
        info = np.iinfo(d)
        xs = np.array([1, 5, info.max, info.min, 3, 77, info.max, info.min, 100, 9, 1, 2], d)
        by = [0, 1, 2, 3, info.bits - 1, info.bits, 127, 4, 5, 6, info.bits - 2, 7]
        signed = [-1, -5, *by[2:]] if info.min else by
        made += [Sample([xs, np.array(b, d)], reference=reference) for b in (by, signed)]
    return made


def _beyond(reference: Callable[..., Any], low: float, high: float, **attrs: Any) -> list[Sample]:
    """As ``unary``, over a range that is wider than -2..2, and with no corner near a drawn number."""
    return [Sample([Spec((40,), low=low, high=high)], attrs, reference=reference)]


def _hard(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(x < low, low, np.where(x > high, high, x))


_PLACES = np.exp(np.arange(-45, 6, 0.02))  # t of the integrals, whose integrand vanishes on both sides


def _polygamma(x: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """By the integral of ``t^n * exp(-x*t) / (1 - exp(-t))`` for x > 0 (Abramowitz and Stegun 1964, 6.3.21)."""
    t, wide = _PLACES, np.asarray(x, np.float64)[..., None]
    each = np.exp(-wide * t) / -np.expm1(-t)
    if n == 0:
        return np.asarray(((np.exp(-t) / t - each) * t * 0.02).sum(-1))
    return np.asarray((-1.0) ** (n + 1) * (t**n * each * t * 0.02).sum(-1))


def _below(x: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """For -1 < x < 0, by the step to x + 1."""
    return np.asarray(_polygamma(x + 1, n) - (-1.0) ** n * math.factorial(n) / x ** (n + 1))


SAMPLES: dict[str, list[Sample]] = {
    "lgamma": [
        *(Sample([Spec(shape, low=0.1, high=12)], reference=each(math.lgamma)) for shape in ((), (0,), (40,), (2, 3))),
        *(Sample([Spec((9,), low=low, high=low + 0.8)], reference=each(math.lgamma)) for low in (-3.9, -1.9, 1.7)),
        Sample([np.array([1.0, 2.0, 0.0, -1.0, 171.5])], outputs=(),
               reference=lambda x: np.array([0, 0, np.inf, np.inf, math.lgamma(171.5)])),
    ],
    "polygamma": [
        *(Sample([Spec((8,), low=0.2, high=14)], {"n": n}, reference=_polygamma) for n in (0, 1, 2, 5)),
        *(Sample([Spec((9,), low=-0.8, high=-0.2)], {"n": n}, reference=_below) for n in (0, 1, 2, 3)),
        *(Sample([Spec(shape, low=0.5, high=2)], {"n": 0}, reference=_polygamma) for shape in ((), (0,), (2, 3))),
    ],
    "tan": unary(lambda x: np.sin(x) / np.cos(x), low=-1.2, high=1.2),
    "asin": unary(each(math.asin), low=-0.9, high=0.9),
    "acos": unary(each(math.acos), low=-0.9, high=0.9),
    "atan": [*unary(each(math.atan)), *_beyond(each(math.atan), -40, 40)],
    "atan2": [
        *binary(np.vectorize(math.atan2, otypes=[float]), y_gap=0.3, corners=False),
        Sample([CORNERS[:, None], CORNERS], outputs=(), near=False,
               reference=np.vectorize(math.atan2, otypes=[float])),
    ],
    "sinh": unary(lambda x: (np.exp(x) - np.exp(-x)) / 2),
    "cosh": unary(lambda x: (np.exp(x) + np.exp(-x)) / 2),
    "asinh": [*unary(each(math.asinh)), *_beyond(each(math.asinh), -1e3, 1e3)],
    "acosh": unary(lambda x: np.log(x + np.sqrt(x - 1) * np.sqrt(x + 1)), low=1.1, high=9),
    "atanh": unary(lambda x: np.log((1 + x) / (1 - x)) / 2, low=-0.9, high=0.9),
    "exp2": unary(lambda x: 2**x),
    "log2": unary(lambda x: np.log(x) / math.log(2), low=0.1),
    "log10": unary(lambda x: np.log(x) / math.log(10), low=0.1),
    "erfc": [*unary(each(math.erfc)), *_beyond(each(math.erfc), -7, 7)],
    "ceil": _flat(lambda x: np.ceil(x)),
    "trunc": _flat(lambda x: np.trunc(x)),
    "frac": _flat(lambda x: np.modf(x)[0] if x.size else x) + [Sample([np.array([-1.7, 0.2, 3.9])])],
    "fmod": [
        *[Sample([Spec(a), Spec(b, gap=0.5)], reference=np.fmod) for a, b in SHAPES],
        Sample([CORNERS[:, None], CORNERS], outputs=(), near=False, reference=np.fmod),
    ],
    "isnan": unary(np.isnan),
    "isinf": unary(np.isinf),
    "isfinite": unary(np.isfinite),
    "nan_to_num": unary(lambda x, nan, posinf, neginf: np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf),
                        nan=0.5, posinf=1e4, neginf=-2e4),
    "bitwise_and": _bits(lambda x, y: x & y),
    "bitwise_or": _bits(lambda x, y: x | y),
    "bitwise_xor": _bits(lambda x, y: x ^ y),
    "bitwise_not": [Sample([Spec((9,), d, 0, 99)], reference=lambda x: x.dtype.type(np.iinfo(x.dtype).max - x)
                           if x.dtype.kind == "u" else -1 - x) for d in INTEGERS],
    "bitwise_left_shift": _shifts(True),
    "bitwise_right_shift": _shifts(False),
    "hardtanh": [
        *[Sample([Spec(s)], {"low": -1.0, "high": 1.0}, reference=_hard) for s in ((), (0,), (7,), (2, 3))],
        Sample([Spec((40,), low=-9, high=9)], {"low": 0.0, "high": 6.0}, reference=_hard),
        Sample([CORNERS], {"low": -1.0, "high": 1.0}, outputs=(), near=False, reference=_hard),
    ],
    "hardsigmoid": [
        *unary(lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        *_beyond(lambda x: np.clip(x / 6 + 0.5, 0, 1), -9, 9),
    ],
    "hardshrink": unary(lambda x, lambd: x * (np.abs(x) > lambd), lambd=0.5),
    "softshrink": unary(lambda x, lambd: np.sign(x) * np.maximum(np.abs(x) - lambd, 0), lambd=0.5),
    "threshold": unary(lambda x, threshold, value: np.where(x <= threshold, value, x), threshold=0.1, value=20.0),
    "mish": [*unary(lambda x: x * np.tanh(np.log(1 + np.exp(x)))),
             *_beyond(lambda x: x * np.tanh(np.log1p(np.exp(x))), -30, 30)],
    "softsign": unary(lambda x: x / (1 + np.abs(x)), gap=0.01),
    "logsigmoid": [*unary(lambda x: np.log(logistic(x))),
                   *_beyond(lambda x: -np.logaddexp(0, -x), -30, 30)],
    "celu": [*unary(lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(x / alpha) - 1)), gap=0.1, alpha=1.0),
             *unary(lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(x / alpha) - 1)), gap=0.1, alpha=0.5)],
}  # fmt: skip
