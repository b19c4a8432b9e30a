"""The results of a training step and of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepResult:
    """One training step. ``step``: its number, from 0. ``nonfinite``: the first parameter in forward order whose
    gradient has a NaN or Inf (those elements were not updated), or None.

    Three fields are set only for a model in f16. ``loss_scale``: that of this step. ``skipped``: a gradient overflowed,
    so nothing was updated and the scale was halved (``nonfinite`` is then None). ``skipped_steps``: the number of steps
    without an update so far."""

    loss: float
    metrics: dict[str, float]
    step: int
    nonfinite: str | None
    loss_scale: float | None = None
    skipped: bool = False
    skipped_steps: int = 0


class LateStepResult(StepResult):
    """A step that a GPU may still be running. Reading any attribute except its number waits for it, and raises the
    step's errors."""

    __slots__ = ("_found", "_read")

    _read: Callable[[], StepResult]
    _found: StepResult | None

    def __init__(self, step: int, read: Callable[[], StepResult]) -> None:
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_found", None)

    def _now(self) -> StepResult:
        found = self._found
        if found is None:
            found = self._read()
            object.__setattr__(self, "_found", found)
            object.__setattr__(self, "_read", lambda: found)  # releases the session's memory
        return found

    @property
    def loss(self) -> float:
        return self._now().loss

    @property
    def metrics(self) -> dict[str, float]:
        return self._now().metrics

    @property
    def nonfinite(self) -> str | None:
        return self._now().nonfinite

    @property
    def loss_scale(self) -> float | None:
        return self._now().loss_scale

    @property
    def skipped(self) -> bool:
        return self._now().skipped

    @property
    def skipped_steps(self) -> int:
        return self._now().skipped_steps

    def __eq__(self, other: object) -> bool:
        return self._now() == (other._now() if isinstance(other, LateStepResult) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._now())


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Loss and metrics over ``rows`` rows. ``loss`` is None for a model without a loss."""

    loss: float | None
    metrics: dict[str, float]
    rows: int
