"""Functions whose results are equal on all machines: only +, -, *, / and exact functions of IEEE doubles.

The functions of the C library, which ``math`` and numpy call, may differ in the last bit between machines. The errors
of those here are below 1e-15 of the result.
"""

from __future__ import annotations

from math import floor, frexp, ldexp
from typing import Final

_LN2: Final = 0.6931471805599453
_DEGREE: Final = 0.017453292519943295  # radians
_TERMS: Final = 24


def exp(x: float) -> float:
    """e to the power x, for \\|x\\| of at most 700."""
    power = floor(x / _LN2 + 0.5)
    rest = x - power * _LN2
    value = 1.0
    for term in range(_TERMS, 0, -1):
        value = 1.0 + value * rest / term
    return ldexp(value, power)


def log(x: float) -> float:
    """The natural logarithm of x > 0."""
    part, power = frexp(x)
    if part < 0.7071067811865476:
        part, power = 2.0 * part, power - 1
    ratio = (part - 1.0) / (part + 1.0)
    square, value = ratio * ratio, 0.0
    for term in range(_TERMS, -1, -1):
        value = value * square + 1.0 / (2 * term + 1)
    return 2.0 * ratio * value + power * _LN2


def sin_cos(degrees: float) -> tuple[float, float]:
    """Sine and cosine; exact for multiples of 90 degrees."""
    quarter = floor(degrees / 90.0 + 0.5)
    rest = (degrees - 90.0 * quarter) * _DEGREE
    square = rest * rest
    sine = cosine = 1.0
    for term in range(_TERMS, 0, -2):
        cosine = 1.0 - square * cosine / (term * (term - 1))
        sine = 1.0 - square * sine / (term * (term + 1))
    sine *= rest
    return ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[quarter % 4]


def tangent(degrees: float) -> float:
    sine, cosine = sin_cos(degrees)
    return sine / cosine
