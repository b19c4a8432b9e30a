"""Scaling of numbers: ``log``, and one of ``standard``, ``minmax``, ``robust``, as facts ``shift`` and ``divisor``."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.columns.sums import Counts, Moments

LOG: Final = "log"
SCALES: Final = ("standard", "minmax", "robust")
STEPS: Final = (LOG, *SCALES)


class ScaleFitter:
    """Fits the last step of ``steps`` to values that are already logarithms if ``log`` is among them."""

    def __init__(self, name: str, steps: tuple[str, ...]) -> None:
        self._last = next((step for step in steps if step in SCALES), None)
        self._moments = Moments()
        self._counts = Counts(name) if self._last == "robust" else None

    def add(self, values: NDArray[np.float64]) -> None:
        self._moments.add(values)
        if self._counts is not None:
            self._counts.add(values)

    def repeat(self, value: float, count: int) -> None:
        self._moments.repeat(value, count)
        if self._counts is not None and count:
            self._counts.repeat(value, count)

    def facts(self) -> tuple[float, float]:
        """``shift`` and ``divisor``: a value x becomes (x - shift) / divisor. A constant column has the divisor 1."""
        if self._last is None:
            return 0.0, 1.0
        if self._counts is not None:
            low, middle, high = (self._counts.quantile(share) for share in (0.25, 0.5, 0.75))
            shift, divisor = middle, high - low
        elif self._last == "minmax":
            shift, divisor = self._moments.low, self._moments.high - self._moments.low
        else:
            shift, divisor = self._moments.mean(), self._moments.deviation()
        return shift, divisor if divisor > 0.0 else 1.0


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln(1 + x); 0 for x <= -1, which ``logarithm_errors`` reports."""
    return np.log1p(np.where(values <= -1.0, 0.0, values))


def logarithm_errors(values: NDArray[np.float64], name: str) -> dict[int, str]:
    """Why the value at a position has no logarithm."""
    wrong = np.flatnonzero(values <= -1.0).tolist()
    return {at: f"`{name[:60]}` = {values[at]:g} has no logarithm ln(1 + x)" for at in wrong}


def refuse_infinite(values: NDArray[np.float64], name: str) -> None:
    """Raise DataError R103 if a value is not finite: sums would not be, either."""
    if not np.isfinite(values).all():
        raise DataError(
            "R103",
            f"`{name[:60]}` has an infinite value, so nothing can be fitted to it",
            place=f"data.columns.{name[:60]}",
            help="fix the data",
        )
