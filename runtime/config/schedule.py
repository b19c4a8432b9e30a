"""Durations and schedules.

A schedule is a factor on a base value (the learning rate of the model's train section, or a float argument of
it), computed on the host in f64 from the step's number alone, so a resumed run sees the same numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final, Literal

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) *(epochs?|steps?)\Z")


@dataclass(frozen=True)
class Duration:
    """A number of steps, or of epochs (then a fraction is allowed)."""

    amount: float
    unit: Literal["steps", "epochs"]

    def steps(self, steps_per_epoch: int) -> int:
        """The nearest whole number of steps."""
        return round(self.amount * steps_per_epoch) if self.unit == "epochs" else int(self.amount)

    def __str__(self) -> str:
        amount = int(self.amount) if self.amount == int(self.amount) else self.amount
        return f"{amount} {self.unit[:-1] if amount == 1 else self.unit}"


NO_TIME: Final = Duration(0, "steps")


def parse_duration(text: str) -> Duration:
    """``2 epochs``, ``0.5 epochs``, ``500 steps``. Raises ValueError with the reason."""
    found = _DURATION.match(text)
    if found is None:
        raise ValueError(f"`{text[:40]}` is not a number with a unit")
    amount, unit = float(found[1]), found[2].rstrip("s")
    if unit == "step" and amount != int(amount):
        raise ValueError("a fraction of a step is not possible")
    return Duration(amount, "epochs" if unit == "epoch" else "steps")


@dataclass(frozen=True)
class Schedule:
    """The configuration of one scheduled value.

    ``base`` None means the model's own value. The factor rises linearly to 1 in ``warmup``. After it, ``constant``
    stays at 1; ``cosine`` and ``linear`` go to ``end`` over ``over`` (default: the rest of the run) and stay there;
    ``step`` multiplies by ``factor`` after each ``every``, or at each of ``at``.
    """

    kind: Literal["constant", "cosine", "linear", "step"] = "constant"
    base: float | None = None
    warmup: Duration = NO_TIME
    end: float = 0.0
    over: Duration | None = None
    factor: float = 0.1
    every: Duration | None = None
    at: tuple[Duration, ...] = field(default=())

    def resolve(self, steps_per_epoch: int, total_steps: int) -> Curve:
        """The schedule with every duration in steps. ``total_steps`` is the length of the whole run."""
        warmup = self.warmup.steps(steps_per_epoch)
        over = total_steps - warmup if self.over is None else self.over.steps(steps_per_epoch)
        every = 0 if self.every is None else max(1, self.every.steps(steps_per_epoch))
        at = tuple(duration.steps(steps_per_epoch) for duration in self.at)
        return Curve(self.kind, warmup, max(1, over), self.end, self.factor, every, at)


@dataclass(frozen=True)
class Curve:
    """A schedule with all durations in steps."""

    kind: Literal["constant", "cosine", "linear", "step"]
    warmup: int
    over: int
    end: float
    decay: float
    every: int
    at: tuple[int, ...]

    def factor(self, step: int) -> float:
        """The factor of a step; ``step`` counts from 0 over the whole run.

        In warm-up it is (step + 1) / warmup, so the first step already has an effect; ``end`` is reached ``over`` steps
        after the warm-up. ``at`` counts from the run's start, ``every`` from the end of the warm-up.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = min(1.0, (step - self.warmup) / self.over)
        if self.kind == "cosine":
            return self.end + (1.0 - self.end) * 0.5 * (1.0 + math.cos(math.pi * progress))
        if self.kind == "linear":
            return 1.0 + (self.end - 1.0) * progress
        if self.kind == "step":
            times = (step - self.warmup) // self.every if self.every else sum(step >= start for start in self.at)
            return float(self.decay**times)
        return 1.0
