"""What the results of steps and evaluations decide: the best step so far, and whether a run ends early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dslc.base.errors import NumericError
from dslc.runtime.config.policies import Best, EarlyStop
from dslc.runtime.session.results import StepResult


class BestStep:
    """The step with the best value of the metric of ``save.best``. ``step`` is None before the first, and without a
    rule."""

    def __init__(self, rule: Best | None) -> None:
        self.rule = rule
        self.step: int | None = None
        self.value: float | None = None

    @property
    def text(self) -> str | None:
        """The value, as text that restores it bit for bit."""
        return None if self.value is None else self.value.hex()

    def restore(self, step: int | None, text: str | None) -> None:
        """Continue from a checkpoint."""
        if step is not None and text is not None:
            self.step, self.value = step, float.fromhex(text)

    def see(self, values: Mapping[str, float], step: int) -> bool:
        """Process an evaluation, or an epoch's means if there is no evaluation; returns whether it is the best."""
        if self.rule is None or self.rule.metric not in values:
            return False
        value = values[self.rule.metric]
        if not self.rule.better(value, self.value):
            return False
        self.step, self.value = step, value
        return True

    def told(self) -> dict[str, Any] | None:
        """For the run's record."""
        if self.rule is None or self.step is None:
            return None
        return {"metric": self.rule.metric, "highest": self.rule.highest, "step": self.step, "value": self.value}


class NonfiniteSteps:
    """Counts steps whose loss or gradient is not finite and tolerates up to ``allowed`` of them."""

    def __init__(self, allowed: int, warn: Callable[[str], None]) -> None:
        self._allowed = allowed
        self._warn = warn
        self.count = 0

    def see(self, result: StepResult, saved: str) -> None:
        """Process such a step. ``saved``: what was saved before it, for the help. NumericError R501 if it is one too
        many."""
        what = "the loss" if result.nonfinite is None else f"the gradient of `{result.nonfinite}`"
        self.count += 1
        if self.count <= self._allowed:
            self._warn(f"step {result.step}: {what} is not finite ({self.count} of {self._allowed} such steps)")
            return
        raise NumericError(
            "R501",
            f"{what} is not finite in step {result.step}",
            place=result.nonfinite or "loss",
            help="try a lower learning rate (--lr) or a warm-up; `on_nan: skip 10` goes on past ten such steps; "
            + saved,
        )


class Patience:
    """Counts evaluations without progress. Without a rule, patience never runs out."""

    def __init__(self, rule: EarlyStop | None) -> None:
        self._rule = rule
        self._best: float | None = None
        self.stale = 0

    @property
    def value(self) -> str | None:
        """The best value so far, as text that restores it bit for bit."""
        return None if self._best is None else self._best.hex()

    @property
    def used_up(self) -> bool:
        return self._rule is not None and self.stale >= self._rule.patience

    @property
    def why(self) -> str:
        assert self._rule is not None
        best = "a finite value" if self._best is None else f"{self._best:.6g}"
        return f"{self._rule.metric} has not improved on {best} for {self.stale} evaluations"

    def restore(self, value: str | None, stale: int) -> None:
        """Continue from a checkpoint."""
        self._best = None if value is None else float.fromhex(value)
        self.stale = stale

    def see(self, values: Mapping[str, float]) -> None:
        """Process an evaluation, or an epoch's means if there is no evaluation."""
        if self._rule is None:
            return
        new = values.get(self._rule.metric.metric)
        if new is not None and self._rule.better(new, self._best):
            self._best, self.stale = new, 0
        else:
            self.stale += 1
