"""What a training step and an evaluation give back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepResult:
    """One training step. ``step``: its number, from 0. ``nonfinite``: the first parameter in forward order whose
    gradient held a NaN or Inf (those elements were left alone), or None."""

    loss: float
    metrics: dict[str, float]
    step: int
    nonfinite: str | None


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Loss and metrics over ``rows`` rows. ``loss`` is None for a model without one."""

    loss: float | None
    metrics: dict[str, float]
    rows: int
