"""Judges the candidates of one problem with a worker: each is checked first, the right ones are then timed in turns.

A candidate that is wrong, writes outside of its buffers, ends the worker or hangs is rejected with the reason, and the
others go on in a new worker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dslc.base.visible import one_line
from dslc.compiler.ir.choice import Choice, Measured
from dslc.tune.client import Client, Gone, Refused
from dslc.tune.timing import spread

_LONGEST: Final = 240  # characters of a reason
#: Seconds that a candidate may take to be loaded and checked. A library takes up to 2 s to build its plan; a few
#: candidates that take longer would use up the budget.
_CHECK: Final = 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate: how it computes the problem, and its container."""

    choice: Choice
    path: Path


@dataclass(frozen=True, slots=True)
class Opening:
    """The request that opens a problem: the container of its reference, and that of the comparing kernels.
    ``deterministic``: a candidate must give the same bits when it is run again."""

    path: Path
    comparer: Path
    target: str
    through_ptx: bool = False
    deterministic: bool = True

    def fields(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "comparer": str(self.comparer),
            "target": self.target,
            "through_ptx": self.through_ptx,
            "deterministic": self.deterministic,
        }


@dataclass
class Judged:
    """The times of the accepted candidates, and for each of the others its text and the reason. ``spreads``,
    ``errors``: by choice, see ``Block``. ``seconds``: how long they were timed."""

    times: list[Measured] = field(default_factory=list)
    spreads: dict[Choice, float] = field(default_factory=dict)
    errors: dict[Choice, float] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def reject(self, trial: Trial, why: str) -> None:
        self.rejected.append(one_line(f"{trial.choice}: {why}")[:_LONGEST])


def judge(client: Client, opening: Opening, trials: Sequence[Trial], seconds: float) -> Judged:
    """Check all trials and time the right ones for up to ``seconds``. Refused if the problem itself cannot be opened,
    e.g. because it does not fit into the GPU's memory."""
    return _Judge(client, opening, trials).run(seconds)


class _Judge:
    def __init__(self, client: Client, opening: Opening, trials: Sequence[Trial]) -> None:
        self._client, self._opening = client, opening
        self._waiting = {f"{trial.choice.provider} {number}": trial for number, trial in enumerate(trials)}
        self._right: dict[str, Trial] = {}
        self._found = Judged()

    def run(self, seconds: float) -> Judged:
        try:
            self._open()
            while True:
                try:
                    self._check_all()
                    begun = time.monotonic()
                    rounds = self._times(seconds) if self._right else {}
                    self._found.seconds = time.monotonic() - begun
                    break
                except Gone as gone:
                    self._reject_running(gone)
                    self._open_again()
        finally:
            self._close()
        for name, trial in self._right.items():
            self._found.times.append(Measured(trial.choice, statistics.median(rounds[name])))
            self._found.spreads[trial.choice] = spread(rounds[name])
        self._found.rejected.sort()
        return self._found

    def _open(self) -> None:
        self._client.start()
        try:
            answer = self._client.ask("open", **self._opening.fields())
        except Gone as gone:
            raise Refused(f"the reference {gone}") from gone
        if answer.get("refused"):
            raise Refused(answer["refused"])

    def _open_again(self) -> None:
        """After the loss of a worker: the right candidates are to be loaded again."""
        self._open()
        self._waiting = {**self._right, **self._waiting}
        self._right = {}

    def _check_all(self) -> None:
        while self._waiting:
            name, trial = next(iter(self._waiting.items()))
            try:
                patience = min(_CHECK, self._client.patience)
                answer = self._client.ask("check", patience, name=name, path=str(trial.path))
            except Gone as gone:
                raise Gone(str(gone), name) from gone
            del self._waiting[name]
            if answer.get("refused"):
                self._found.reject(trial, answer["refused"])
            else:
                self._right[name] = trial
                self._found.errors[trial.choice] = answer["error"]
            if answer.get("lost"):
                self._open_again()

    def _times(self, seconds: float) -> dict[str, list[float]]:
        answer = self._client.ask("time", self._client.patience + seconds, seconds=seconds)
        if answer.get("refused"):
            if answer.get("lost"):
                raise Gone(answer["refused"], None)
            raise Refused(answer["refused"])
        found: dict[str, list[float]] = answer["rounds"]
        return found

    def _reject_running(self, gone: Gone) -> None:
        """Reject the candidate that ran when the worker was lost."""
        at = gone.at
        if at is None:
            raise Refused(f"timing {gone}") from gone
        trial = self._waiting.pop(at, None) or self._right.pop(at)
        self._found.reject(trial, str(gone))

    def _close(self) -> None:
        if self._client.running:
            try:
                self._client.ask("close")
            except Gone:
                return  # the next problem starts a new worker
