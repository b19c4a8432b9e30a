"""Whether a candidate's result is right: how far it may be from the reference, by dtype, and the words for a refusal.

Two right results differ by the rounding of the result, and by that of sums in another order. Two figures say how far
they are apart, in the units that ``Difference`` describes: the largest difference, which finds a single wrong element,
and the root mean square of the differences, which finds a small error of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Most of the largest difference and of the mean one. 16-bit floats: two roundings of one number differ by one unit in
#: its last place, 2^-7 (bf16) and 2^-10 (f16) of its binade, and terms that cancel may be some 16 times the result; on
#: average they differ by less than half a unit. f32, f64: sums of millions in another order; f32 also holds TF32.
_LIMITS: Final = {
    "bf16": (2.0**-3, 2.0**-8),
    "f16": (2.0**-6, 2.0**-11),
    "f32": (2.0**-9, 2.0**-12),
    "f64": (2.0**-30, 2.0**-33),
}
#: With factors that are rounded to TF32, which keep 11 bits.
_TF32: Final = (2.0**-6, 2.0**-9)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a tensor is from its reference. Each element counts in units of its own size, but of no less than the
    usual size of all: an element that is much larger, as on the diagonal of a product of a tensor with itself, is
    rounded more than the others. ``most``: the largest difference; ``apart``: the sum of the squares of all; ``whole``:
    that of the reference's elements in the same units, each 1 at most. ``strange``: elements of which only one is
    finite, or that are other infinities."""

    most: float
    apart: float
    whole: float
    strange: int

    @property
    def error(self) -> float:
        """The largest difference; inf if an element is strange."""
        return math.inf if self.strange else self.most

    @property
    def same(self) -> bool:
        """Whether both hold the same numbers."""
        return not self.most and not self.strange

    @property
    def mean(self) -> float:
        """The root mean square of the differences, in units of that of the elements."""
        return math.sqrt(self.apart / self.whole) if self.whole else math.inf if self.apart else 0.0

    def refusal(self, dtype: str, tf32: bool, rounds: str = "") -> str | None:
        """Why a result of this dtype is wrong; None if it is right. Integers must be equal. ``rounds``: the narrower
        float type of values that floats of this one were computed from, or nothing."""
        if self.strange:
            return f"wrong result ({self.strange} elements are not finite, or were not written)"
        most, mean = _TF32 if tf32 and dtype == "f32" else _LIMITS.get(dtype, (0.0, 0.0))
        if rounds and dtype in _LIMITS:
            most, mean = max((most, mean), _LIMITS[rounds])
        if self.error > most or self.mean > mean:
            return f"wrong result (error {self.error:.2g}, on average {self.mean:.2g})"
        return None


def combined(parts: NDArray[np.float64]) -> Difference:
    """The difference of two tensors from the partial results of the kernel ``Compare``, f64[blocks, 4]."""
    apart, whole, strange = parts[:, 1:].sum(axis=0).tolist()
    return Difference(float(parts[:, 0].max(initial=0.0)), apart, whole, int(strange))


def damage(zones: Sequence[tuple[str, bytes, bytes]], pattern: int) -> str | None:
    """Where a kernel wrote outside of its buffers; None if it did not. ``zones``: for each buffer its name, and the
    bytes before and after it, which held ``pattern``."""
    for name, before, after in zones:
        reach = len(before.lstrip(bytes([pattern])))
        if reach:
            return f"writes {reach} bytes before {name}"
        first = len(after) - len(after.lstrip(bytes([pattern])))
        if first < len(after):
            return f"writes {first + 1} bytes after the end of {name}"
    return None
