"""Whether a candidate's result is right: how far it may be from the reference, by dtype, and the words for a refusal.

Two right results differ by the rounding of the result, and by that of sums in another order. Three figures say how far
they are apart:

- The largest difference, in units of the reference's root mean square, finds a single wrong element. In addition, each
  element may be rounded the other way: the diagonal of a product of a tensor with itself is much larger than the rest.
- The root mean square of the differences finds a small error of all elements.
- The share of elements that are off by much of their own size finds a small error of most elements when a few are much
  larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Limits:
    """``most``: of the largest difference; ``mean``: of the root mean square of all; ``unit``: the part of itself by
    which an element may be rounded the other way."""

    most: float = 0.0
    mean: float = 0.0
    unit: float = 0.0

    @property
    def far(self) -> float:
        """The part of itself by which no more than half of the elements may differ."""
        return _FAR * self.mean


#: For integers, and for bits.
EQUAL: Final = Limits()
#: 16-bit floats: two roundings of one number differ by one unit in its last place, 2^-7 (bf16) and 2^-10 (f16) of its
#: binade, and terms that cancel may be some 16 times the result; on average they differ by less than half a unit. f32,
#: f64: sums of millions in another order; f32 also holds TF32.
_LIMITS: Final = {
    "bf16": Limits(2.0**-3, 2.0**-8, 2.0**-7),
    "f16": Limits(2.0**-6, 2.0**-11, 2.0**-10),
    "f32": Limits(2.0**-9, 2.0**-12, 2.0**-23),
    "f64": Limits(2.0**-30, 2.0**-33, 2.0**-52),
}
#: With factors that are rounded to TF32, which keep 11 bits.
_TF32: Final = Limits(2.0**-6, 2.0**-9, 2.0**-23)
_FAR: Final = 1.5  # times the limit of the mean
_MANY: Final = 0.5  # of the elements that are not 0


def limits_of(dtype: str, tf32: bool = False, rounds: str = "") -> Limits:
    """For results of this dtype; integers must be equal. ``rounds``: the narrower float type of values that floats of
    this one were computed from, or nothing."""
    found = _TF32 if tf32 and dtype == "f32" else _LIMITS.get(dtype, EQUAL)
    wider = rounds and dtype in _LIMITS and _LIMITS[rounds].most > found.most
    return _LIMITS[rounds] if wider else found


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a tensor is from its reference. ``most``: the largest difference, less a unit of rounding; ``mean``: the
    root mean square of all; ``size``: that of the reference. ``strange``: elements of which only one is finite, or that
    are other infinities. ``many``: the part of the elements that differ by more than ``Limits.far`` of themselves."""

    most: float
    mean: float
    size: float
    strange: int
    many: float

    @property
    def error(self) -> float:
        """The largest difference in units of ``size``; inf if an element is strange."""
        return math.inf if self.strange else self._of_size(self.most)

    @property
    def same(self) -> bool:
        """Whether both hold the same numbers, if ``most`` is less nothing."""
        return not self.most and not self.strange

    def _of_size(self, value: float) -> float:
        return value / self.size if self.size else math.inf if value else 0.0

    def refusal(self, limits: Limits) -> str | None:
        """Why the result is wrong; None if it is right."""
        if self.strange:
            return f"wrong result ({self.strange} elements are not finite, or were not written)"
        if self.error > limits.most or self._of_size(self.mean) > limits.mean:
            return f"wrong result (error {self.error:.2g}, on average {self._of_size(self.mean):.2g})"
        if self.many > _MANY:
            return f"wrong result ({self.many:.0%} of its elements are off by more than {limits.far:.2g} of themselves)"
        return None


def combined(parts: NDArray[np.float64], count: int) -> Difference:
    """The difference of two tensors of ``count`` elements, from the partial results of ``Compare``, f64[blocks, 6]."""
    apart, whole, strange, far, present = parts[:, 1:].sum(axis=0).tolist()
    most, some = float(parts[:, 0].max(initial=0.0)), max(1, count)
    mean, size = math.sqrt(apart / some), math.sqrt(whole / some)
    return Difference(most, mean, size, int(strange), far / present if present else 0.0)


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
