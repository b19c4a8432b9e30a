"""Runs the trials of a sweep until all are done or a signal arrives.

After each change the state is written before the next trial starts, so a process that is killed at any point loses at
most the steps since the trials' last checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from dslc.base.errors import EXIT_OK, EXIT_SIGTERM, DataError
from dslc.base.filelock import FileLock
from dslc.base.turns import Always
from dslc.runtime.config.policies import Best
from dslc.runtime.config.yaml import Value, plain
from dslc.runtime.history.folders import run_in
from dslc.runtime.sweep.chooser import Chooser
from dslc.runtime.sweep.draws import Values
from dslc.runtime.sweep.output import add_output
from dslc.runtime.sweep.plan import SweepPlan, Trial
from dslc.runtime.sweep.pool import Ended, Place, Pool
from dslc.runtime.sweep.resume import joined
from dslc.runtime.sweep.state import FAILED, FINISHED, RUNNING, STOPPED, WAITING, Entry, Result, State
from dslc.runtime.train.signals import StopRequest

_LOCK: Final = ".dslc-sweep"
_LOOK: Final = 0.5  # seconds between two looks at signals and progress

#: The task of a trial as data, for its process: ``make(trial, changed, folder)``.
TaskMaker: TypeAlias = Callable[[Trial, Mapping[str, Value], Path], dict[str, Any]]


class Report(Protocol):
    """Shows a sweep to its user."""

    def line(self, text: str) -> None: ...
    def ended(self, entry: Entry, done: int, total: int) -> None: ...
    def progress(self, done: float, running: int, total: int) -> None: ...


@dataclass(frozen=True)
class SweepResult:
    """``exit_code``: 0 if all trials are done, 130 or 143 after a signal. ``total``: the number of trials to run."""

    folder: Path
    entries: Sequence[Entry]
    rule: Best
    total: int
    exit_code: int

    @property
    def best(self) -> Entry | None:
        """The trial with the best value; of equal ones the first. None if no trial has a value."""
        found: Entry | None = None
        for entry in self.entries:
            former = None if found is None or found.result is None else found.result.value
            if entry.result is not None and self.rule.better(entry.result.value, former):
                found = entry
        return found

    @property
    def comparable(self) -> bool:
        """True if all trials were evaluated on the same data."""
        return len({entry.result.data for entry in self.entries if entry.result is not None}) <= 1


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    source: str,
    command: Sequence[str],
    places: Sequence[Place],
    task: TaskMaker,
    report: Report,
    *,
    allow_changes: bool = False,
    retry: bool = False,
) -> SweepResult:
    """Run what is left of a sweep in its folder. ``source``: the digest of the models' texts.

    Raises ArtifactError R307 as ``joined``, ResourceError R402 if the state cannot be written, R404 if another process
    runs this sweep, EnvironmentFault R205 if optuna is missing. The trials' own errors are recorded.
    """
    stop = StopRequest()
    with Always(stop.restore), stop, FileLock(folder / _LOCK, what="sweep").scope() as scope, scope:
        state, changes = joined(plan, folder, source, allow_changes=allow_changes, retry=retry)
        chooser = Chooser(plan) if plan.method == "optuna" else None
        for change in changes:
            report.line(f"changed since the sweep was started: {change}")
        known = sum(entry.done for entry in state.entries)
        if known:
            report.line(f"{known} of {plan.count} trials are done already")
        state.write(folder)
        pool = Pool(command, places)
        with Always(pool.close), Always(pool.close):
            loop = _Loop(plan, folder, state, chooser, pool, task, report)
            code = loop.run(stop)
        return SweepResult(folder, state.entries, plan.rule, loop.total, code)


def require_startable(plan: SweepPlan, folder: Path, source: str, *, allow_changes: bool, retry: bool) -> None:
    """Raise what ``run_sweep`` would raise at once, R307 and R404, before anything is built."""
    with FileLock(folder / _LOCK, what="sweep").scope() as scope, scope:
        joined(plan, folder, source, allow_changes=allow_changes, retry=retry)


class _Loop:
    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        state: State,
        chooser: Chooser | None,
        pool: Pool,
        task: TaskMaker,
        report: Report,
    ) -> None:
        self.plan, self.folder, self.state, self.chooser = plan, folder, state, chooser
        self.pool, self.task, self.report = pool, task, report
        self.trials = {trial.key: trial for trial in plan.trials}
        self.total = plan.count
        self.looked = 0.0

    def run(self, stop: StopRequest) -> int:
        asked = False
        try:
            while True:
                if stop.exit_code is None:
                    self._start()
                elif not asked:
                    asked = True
                    self.report.line("stopping: each trial finishes its step and saves")
                    self.pool.stop()
                if not self.pool.running:
                    break
                for ended in self.pool.wait(_LOOK):
                    self._end(ended, asked)
                self._progress()
        except KeyboardInterrupt:  # a second signal
            self.pool.kill()
            raise
        if stop.exit_code is not None:
            return stop.exit_code
        return EXIT_OK if all(entry.done for entry in self.state.entries) else EXIT_SIGTERM  # somebody stopped a trial

    def _start(self) -> None:
        """Start trials while there are free places."""
        while self.pool.free and (found := self._next()) is not None:
            entry, values = found
            folder = self.folder / entry.folder
            entry.state = RUNNING
            self.state.write(self.folder)
            trial, changed = self.trials[entry.key], self.plan.changed(values)
            self.pool.start(entry, folder, self.task(trial, changed, folder))

    def _next(self) -> tuple[Entry, Values] | None:
        """The next trial and its values; None if none is left."""
        for entry in self.state.entries:
            if entry.state == WAITING:
                return entry, self._values(entry)
        while self.chooser is not None and len(self.state.entries) < self.total:
            values = self.chooser.next(self.state.entries)
            if values is None:
                self.total = len(self.state.entries)
                self.report.line(f"the space has no more combinations: {self.total} trials")
                return None
            try:
                trial = self.plan.trial(values)
            except DataError as error:  # values that do not go together
                self._refused(values, error)
                continue
            self.trials[trial.key] = trial
            return self.state.add(trial.key, trial.values), values
        return None

    def _values(self, entry: Entry) -> Values:
        """The values of a stored trial, with their places in the space."""
        found = {}
        for axis in self.plan.base.sweep.space.axes:
            value = axis.matching(entry.values[axis.key])
            assert value is not None, "the state was joined with this plan"
            found[axis.key] = value
        if entry.key not in self.trials:  # optuna chose it in an earlier process
            self.trials[entry.key] = self.plan.trial(found)
        return found

    def _refused(self, values: Values, error: DataError) -> None:
        said = {key: plain(value) for key, value in values.items()}
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        entry = self.state.add(digest, said)
        self._failed(entry, f"{error.code}: {error.message}")

    def _end(self, ended: Ended, asked: bool) -> None:
        entry, answer = ended.entry, ended.answer
        if answer is not None and "finished" in answer:
            entry.state, entry.result = FINISHED, Result.of_json(answer["finished"])
            self._done(entry)
        elif answer is not None and "failed" in answer:
            self._failed(entry, answer["failed"])
        elif asked or answer is not None:
            entry.state = STOPPED
            self.state.write(self.folder)
        else:
            add_output(self.folder / entry.folder, ended.said)
            self._failed(entry, f"R406: its process has ended: {ended.cause}")

    def _failed(self, entry: Entry, why: str) -> None:
        shown = "".join(char if char.isprintable() else " " for char in why)
        entry.state, entry.error = FAILED, shown[:1000]
        self._done(entry)

    def _done(self, entry: Entry) -> None:
        self.state.write(self.folder)
        self.report.ended(entry, sum(each.done for each in self.state.entries), self.total)

    def _progress(self) -> None:
        now = time.monotonic()
        if now - self.looked < _LOOK:
            return
        self.looked = now
        done = float(sum(entry.done for entry in self.state.entries))
        for running in self.pool.running:
            stored = run_in(running.folder)
            step, steps = stored.number("step"), stored.number("steps")
            if step is not None and steps:
                done += min(1.0, max(0.0, step / steps))
        self.report.progress(done, len(self.pool.running), self.total)
