"""Samples of lgamma and polygamma."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from op_samples.elementwise import each
from op_samples.sample import Sample, Spec

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
}  # fmt: skip
