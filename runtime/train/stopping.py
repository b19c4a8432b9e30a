"""Early stopping: a run ends if a metric has not improved for some evaluations."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.runtime.config.policies import EarlyStop


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
