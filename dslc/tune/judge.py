"""Judges the candidates of one problem with a worker: each is checked first, the right ones are then timed in turns.

A candidate that is wrong, writes outside of its buffers, ends the worker or hangs is rejected with the reason, and the
others go on in a new worker. One that takes many times as long as another is not looked at any further.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dslc.base.visible import one_line
from dslc.compiler.ir.choice import OWN, Choice, Measured
from dslc.tune.client import Client, Gone, Refused
from dslc.tune.settings import UNTRIED
from dslc.tune.timing import spread

_LONGEST: Final = 240  # characters of a reason
#: Seconds that a candidate may take to be loaded. A library takes up to 2 s to build its plan; a few candidates that
#: take longer would use up the budget.
_CHECK: Final = 10.0
#: A way that takes so many times as long as another speaks for all of its engine, whose knobs change less than that.
_FAR: Final = 20.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate: how it computes the problem, and its container."""

    choice: Choice
    path: Path


def engine_of(choice: Choice) -> str:
    """A library's engine without its knobs, ``cudnn eng62``; an own way is one by itself."""
    return str(choice) if choice.provider == OWN else f"{choice.provider} {re.split('[ _]', choice.algorithm)[0]}"


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


def judge(
    client: Client, opening: Opening, trials: Sequence[Trial], seconds: float, hung: set[str] | None = None,
    checks: float = math.inf,
) -> Judged:  # fmt: skip
    """Check all trials and time the right ones for up to ``seconds``. ``hung``: the engines of libraries that did not
    end for problems of this kind, which are not tried again; those of this problem are added. ``checks``: seconds after
    which no more ways of a provider are tried if one of them is right. Refused if the problem itself cannot be opened,
    e.g. because it does not fit into the GPU's memory."""
    return _Judge(client, opening, trials, set() if hung is None else hung, time.monotonic() + checks).run(seconds)


class _Judge:
    def __init__(self, client: Client, opening: Opening, trials: Sequence[Trial], hung: set[str], end: float) -> None:
        self._client, self._opening, self._hung, self._end = client, opening, hung, end
        self._untried = 0  # ways for which there was no time
        self._waiting = {f"{trial.choice.provider} {number}": trial for number, trial in enumerate(trials)}
        self._first = next(iter(trials), None)
        self._right: dict[str, Trial] = {}
        self._seen: dict[str, float] = {}  # seconds of one call of the right ones, about
        self._slow: set[str] = set()  # engines that take many times as long as others
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
        if self._untried:
            self._found.rejected.append(f"{self._untried} ways {UNTRIED}")
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
        """After the loss of a worker: the right candidates are loaded again, without a check."""
        while True:
            self._open()
            try:
                return self._accept_again()
            except Gone as gone:
                self._reject_running(gone)

    def _accept_again(self) -> None:
        for name, trial in [*self._right.items()]:
            answer = self._asked("accept", name, trial, seconds=self._seen[name])
            if answer.get("lost"):
                raise Gone(answer["refused"], name)
            if answer.get("refused"):
                del self._right[name]
                self._found.reject(trial, answer["refused"])

    def _check_all(self) -> None:
        while self._waiting:
            name, trial = next(iter(self._waiting.items()))
            if self._left_out(trial):
                del self._waiting[name]
                continue
            answer = self._asked("check", name, trial)
            del self._waiting[name]
            if answer.get("refused"):
                self._found.reject(trial, answer["refused"])
            elif answer["outdone"]:
                self._outdone(trial, answer["seconds"])
            else:
                self._right[name], self._seen[name] = trial, answer["seconds"]
                self._found.errors[trial.choice] = answer["error"]
            if answer.get("lost"):
                self._open_again()

    def _left_out(self, trial: Trial) -> bool:
        """Whether other ways of its engine have shown that this one need not be tried, or the time is up. The first
        one, which is what a build takes without measurements, is tried always."""
        right = {each.choice.provider for each in self._right.values()}
        if time.monotonic() > self._end and trial.choice.provider in right:
            self._untried += 1
            return True
        engine = engine_of(trial.choice)
        if trial is not self._first and engine in self._hung:
            self._found.reject(trial, "was not tried: its engine did not end with other knobs, or for another problem")
            return True
        return engine in self._slow

    def _asked(self, do: str, name: str, trial: Trial, **fields: Any) -> dict[str, Any]:
        """The answer to a request about a candidate. Gone with its name."""
        patience = min(_CHECK, self._client.patience)
        what = {"name": name, "path": str(trial.path), "workspace": trial.choice.workspace}
        try:
            return self._client.ask(do, patience, **what, **fields)
        except Gone as gone:
            raise Gone(str(gone), name, gone.hung) from gone

    def _outdone(self, trial: Trial, seconds: float) -> None:
        """Note the engine of a way that takes many times as long as others of its provider."""
        provider = trial.choice.provider
        least = min(self._seen[name] for name, each in self._right.items() if each.choice.provider == provider)
        if seconds > _FAR * least and provider != OWN:
            self._slow.add(engine_of(trial.choice))

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
        if gone.hung and trial.choice.provider != OWN:
            self._hung.add(engine_of(trial.choice))

    def _close(self) -> None:
        if self._client.running:
            try:
                self._client.ask("close")
            except Gone:
                return  # the next problem starts a new worker
