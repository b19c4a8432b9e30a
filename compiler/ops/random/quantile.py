"""The normal distribution and its quantiles, in f64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dslc.compiler.ir.special import erf
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

# From the start value, seven steps reach the last bit for every q >= 2^-60; a test compares them with the
# definition.
STEPS = 9


def normal_probability(z: float) -> float:
    """The probability that a standard normal variable is less than ``z``."""
    return 0.5 * math.erfc(-z * math.sqrt(0.5))


def normal_quantile(q: Array) -> Array:
    """The quantile ``q``, 0 < q < 1, of the standard normal distribution, for f64 arrays.

    Newton's method on log P(z) = log q for the smaller tail, z <= 0. As log P is concave, steps from the left never
    pass the root; they start on its left, at ``-sqrt(-2 log 2q)``, since P(z) <= exp(-z^2/2)/2. The absolute error
    is below 1e-7 for q in 2^-25..1 - 2^-25, where 1 + erf cancels, and much smaller inside.
    """
    tail = np.minimum(q, 1 - q)
    z = -np.sqrt(np.maximum(-2 * np.log(2 * tail), 0))
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            below = np.maximum(0.5 * (1 + erf(z * math.sqrt(0.5))), np.finfo(np.float64).tiny)
            density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
            z = z + np.log(tail / below) * (below / density)
    result: Array = np.where(q < 0.5, z, -z)
    return result
