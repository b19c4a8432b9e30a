"""Trials that optuna chooses from the results of earlier ones (extra ``sweep``).

A choice is a function of the seed, the number of the trial and the results so far: nothing else is stored. So a resumed
sweep chooses as an uninterrupted one, as long as trials run one after the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra
from dslc.runtime.config.space import Axis
from dslc.runtime.config.yaml import Value, plain
from dslc.runtime.sweep.draws import Values, rounded
from dslc.runtime.sweep.plan import SweepPlan
from dslc.runtime.sweep.state import FAILED, FINISHED, Entry

_ATTEMPTS: Final = 20  # choices that were made before, until the space counts as exhausted


class Chooser:
    """Chooses the next trial. EnvironmentFault R205 if optuna is missing."""

    def __init__(self, plan: SweepPlan) -> None:
        try:
            import optuna
        except ImportError as error:
            raise EnvironmentFault(
                "R205", "`method: optuna` needs optuna", place="sweep.method", help=install_extra("sweep")
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna: Any = optuna
        self._plan = plan
        self._axes = {axis.key: axis for axis in plan.base.sweep.space.axes}

    def next(self, entries: Sequence[Entry]) -> Values | None:
        """The values of the next trial, other than those of all ``entries``; None if none is found."""
        known = [entry.values for entry in entries]
        for attempt in range(_ATTEMPTS):
            found = self._asked(entries, attempt)
            if {key: plain(value) for key, value in found.items()} not in known:
                return found
        return None

    def _asked(self, entries: Sequence[Entry], attempt: int) -> Values:
        text = f"chosen by optuna {self._plan.base.sweep.seed} {len(entries)} {attempt}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        study = self._optuna.create_study(
            sampler=self._optuna.samplers.TPESampler(seed=seed),
            direction="maximize" if self._plan.rule.highest else "minimize",
        )
        kinds = {key: self._distribution(axis) for key, axis in self._axes.items()}
        states = self._optuna.trial.TrialState
        for entry in entries:
            if entry.state not in (FINISHED, FAILED):
                continue  # another trial that runs now
            value = math.nan if entry.result is None else entry.result.value
            known = math.isfinite(value)
            study.add_trial(
                self._optuna.trial.create_trial(
                    state=states.COMPLETE if known else states.FAIL,
                    value=value if known else None,
                    params={key: self._number(axis, entry.values[key]) for key, axis in self._axes.items()},
                    distributions=kinds,
                )
            )
        params = study.ask(kinds).params
        return {key: self._value(axis, params[key]) for key, axis in self._axes.items()}

    def _distribution(self, axis: Axis) -> Any:
        kinds = self._optuna.distributions
        if axis.choices:
            return kinds.CategoricalDistribution(tuple(range(len(axis.choices))))
        if axis.kind == "int":
            return kinds.IntDistribution(int(axis.low), int(axis.high))
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.kind == "log_uniform")

    @staticmethod
    def _number(axis: Axis, value: Any) -> Any:
        """Data of a trial as optuna knows it: a choice is its index."""
        if not axis.choices:
            return value
        return next(at for at, choice in enumerate(axis.choices) if choice is axis.matching(value))

    @staticmethod
    def _value(axis: Axis, found: Any) -> Value:
        if axis.choices:
            return axis.choices[int(found)]
        return axis.of(int(found) if axis.kind == "int" else rounded(found, axis))
