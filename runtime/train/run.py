"""One training run: its state between two steps, and the actions after each step.

The order is: train a step, report, evaluate, log, save, check for signals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import EXIT_OK, DslcError
from dslc.base.failpoint import fail
from dslc.base.turns import Always
from dslc.base.version import VERSION
from dslc.runtime.config.config import Config
from dslc.runtime.config.policies import Best
from dslc.runtime.history.evaluation_data import identity
from dslc.runtime.history.record import Record
from dslc.runtime.history.score import Score
from dslc.runtime.session.results import EvalResult, LateStepResult, StepResult
from dslc.runtime.sinks.sinks import Sinks
from dslc.runtime.train.checkpoint import Position
from dslc.runtime.train.metrics import Log, RunningMeans, metrics_of, scaling_of
from dslc.runtime.train.plot import Picture
from dslc.runtime.train.progress import Pace, Reporter, epoch_lines
from dslc.runtime.train.resume import compare, install, refusal, require_longer
from dslc.runtime.train.rundir import label
from dslc.runtime.train.saver import Saver
from dslc.runtime.train.setup import Plan, run_evaluation
from dslc.runtime.train.signals import StopRequest
from dslc.runtime.train.stopping import BestStep, NonfiniteSteps, Patience
from dslc.runtime.train.trainable import Trainable

LOG_NAME: Final = "log.jsonl"


class Run:
    """The state of a run between its steps."""

    def __init__(
        self,
        config: Config,
        session: Trainable,
        plan: Plan,
        folder: Path,
        report: Reporter,
        allow_changes: bool = False,
    ) -> None:
        self.config = config
        self.allow_changes = allow_changes  # of the configuration, when the run is resumed
        self.session = session
        self.plan = plan
        self.folder = folder
        self.report = report
        self.interface_digest: str = session.artifact.header["interface_sha256"]
        self.saver = Saver(session, folder, config.save.keep, config.train.on_nan, report)
        section = session.interface.train
        self.means = RunningMeans(() if section is None else section.epoch_metrics)
        self.done = 0
        self.nonfinite = NonfiniteSteps(config.train.on_nan.skip, report.warn)
        self.best = BestStep(config.save.best)
        self.evaluated: dict[str, float] = {}
        self.patience = Patience(config.train.stop)
        self.record = Record(folder, config, session, plan, report.warn)
        self.which = "last"  # weights, which are kept: for messages
        self.means_of_epoch: dict[str, float] = {}
        self.picture = Picture(folder, LOG_NAME, config.save.plot, report.warn)
        self.log: Log
        self.sinks = Sinks(report.line, report.warn)
        self._unread: list[StepResult] = []  # steps that were started and not processed yet
        self._pace = Pace(plan.batch)

    # Beginning

    def begin(self, resume: bool) -> None:
        if resume:
            self.restore()
        else:
            weights = self.session.weights
            data = self.plan.train
            weights.notes = {**weights.notes, **data.fitted.notes(), **data.decoder_note(), **data.tokenizer_note()}
        log_path = self.folder / LOG_NAME
        self.log = Log(log_path, self.report.warn, after_step=self.done if resume else None)
        self.record.begin(resume)
        self.sinks.start(self.config.save.sinks, self.record.about(), log_path, resume)

    def restore(self) -> None:
        """Continue from the newest valid checkpoint. ArtifactError R307 if there is none."""
        refused = partial(refusal, self.config, self.plan, self.interface_digest)
        found = self.saver.store.newest(refused, self.report.warn)
        there = found.position
        require_longer(self.config, self.plan, there, self.folder)
        compare(self.config, there.config, self.folder, self.allow_changes, self.report.warn)
        if self.plan.train.tokenizer is not None:
            self.plan.train.tokenizer.require_trained(found.notes)
        install(self.session, found)
        decoder, weights = self.plan.train.decoder_note(), self.session.weights
        for name, text in decoder.items():
            if (was := weights.notes.get(name, text)) != text:
                self.report.warn(f"{text} decodes the images, it was {was}: their pixels may differ")
        weights.notes = {**weights.notes, **decoder}
        self.done = there.step
        self.nonfinite.count = there.skipped
        self.means.restore(there.means)
        self.patience.restore(there.stop_value, there.stop_stale)
        self.saver.found(found)
        self.best.restore(there.best_step, there.best_value)
        self.report.line(
            f"run {label(self.folder)}: resuming from {found.path}: {there.step} of {self.plan.total} steps"
        )

    # Stepping

    def loop(self, stop: StopRequest) -> int:
        """Train to the end of the run or until a signal; returns the exit code."""
        plan = self.plan
        self.report.start(plan.total, self.done, self.config.train.epochs)
        feed = plan.train.feed(plan.tasks(self.config, self.done), self.config.data.workers)
        with Always(feed.close), Always(feed.close):
            while self.done < plan.total and not self.patience.used_up:
                if stop.exit_code is not None:
                    break
                begun = time.monotonic()
                to_due = self._steps_to_due()
                taken = self._take(feed, min(self.session.steps_per_launch, to_due))
                self._unread += taken
                self.done += len(taken)
                due = len(taken) == to_due
                results = self._results(keep=0 if due else len(taken))
                self._pace.add(len(taken), time.monotonic() - begun)
                for result in results:
                    self._look_at(result)
                if due:
                    self._after_step(results[-1])
            for result in self._results(keep=0):
                self._look_at(result)
        return self._stopped(stop.exit_code) if stop.exit_code is not None else EXIT_OK

    def _take(self, feed: Iterator[Mapping[str, Any]], count: int) -> list[StepResult]:
        """Start the next ``count`` steps, as many as a GPU takes with one launch. They belong to one epoch, at whose
        start the states that the model carries begin again."""
        self.plan.begin_step(self.session, self.done)
        given = (self._given(next(feed), self.done + ahead) for ahead in range(count))
        return self.session.train_steps(given) if count > 1 else [self.session.train_step(**next(given))]

    def _given(self, arrays: Mapping[str, Any], step: int) -> dict[str, Any]:
        fail("train.step")
        return {**arrays, **self.plan.scalars_at(step), "lr": self.plan.lr_at(step)}

    def _results(self, keep: int) -> list[StepResult]:
        """The steps to process now, after waiting for them: all but the newest ``keep`` if a GPU is still running
        those."""
        late = bool(self._unread) and isinstance(self._unread[-1], LateStepResult)
        count = len(self._unread) - (keep if late else 0)
        found, self._unread = self._unread[:count], self._unread[count:]
        for result in found:
            result.loss  # noqa: B018  # waits here, where the time is measured
        return found

    def _look_at(self, result: StepResult) -> None:
        if not result.skipped:  # a skipped step has nothing to average: its loss scale was too high and is now lower
            if result.nonfinite is not None or not math.isfinite(result.loss):
                self._nonfinite(result)
            else:
                self.means.add({"loss": result.loss, **result.metrics})
        self.report.step(result.step + 1, result.step // self.plan.batches + 1, self.means.means(), self._pace.rate)

    def _steps_to_due(self) -> int:
        """The number of steps to the next one with a log, an evaluation or a checkpoint."""
        plan = self.plan
        often = [plan.batches, plan.log_every, plan.save_every, *([] if plan.eval is None else [plan.eval_every])]
        return min(plan.total - self.done, min(every - self.done % every for every in often))

    def _after_step(self, result: StepResult) -> None:
        """Performs the actions due after the step whose result is ``result``."""
        plan = self.plan
        epoch, batch = divmod(self.done, plan.batches)
        values = self.means.means()
        last = self.done == plan.total
        fresh_best = False
        evaluated: dict[str, float] = {}
        if plan.eval is not None and (self.done % plan.eval_every == 0 or last):
            evaluated = self._evaluate()
            fresh_best = self.best.see(evaluated, self.done)
            self.patience.see(evaluated)
        if self.done % plan.log_every == 0:
            lr = plan.lr_at(self.done - 1)
            taken = {"loss": result.loss, **result.metrics, "lr": lr, **scaling_of(result)}
            self.log.write("step", self.done, epoch, taken)
            self.sinks.tell()
        if batch == 0:
            if plan.eval is None:
                fresh_best = self.best.see(values, self.done)
                self.patience.see(values)
            self._end_of_epoch(epoch, {**values, **scaling_of(result)}, evaluated)
        last |= self.patience.used_up
        if fresh_best or self.done % plan.save_every == 0 or last:
            self.saver.save(self._position(), must=last)
        if self.patience.used_up:
            self.report.line(f"stopped after {self.done} of {plan.total} steps: {self.patience.why}")

    def _end_of_epoch(self, epoch: int, values: Mapping[str, float], evaluated: Mapping[str, float]) -> None:
        rate, seconds = self._pace.rate, self._pace.seconds
        taken = {**values, "samples_per_s": rate, "seconds": seconds}
        self.log.write("epoch", self.done, epoch, taken)
        self.sinks.tell()
        for line in epoch_lines(epoch, self.config.train.epochs, values, evaluated, rate, seconds):
            self.report.line(line)
        self.picture.draw()
        self.means_of_epoch = dict(values)
        self._progress()
        self.means.clear()
        self._pace = Pace(self.plan.batch)

    def _nonfinite(self, result: StepResult) -> None:
        epoch = result.step // self.plan.batches
        self.log.write("nonfinite", result.step + 1, epoch, {"of": result.nonfinite or "loss", "loss": result.loss})
        last = self.saver.last
        self.nonfinite.see(result, f"the last checkpoint is {last}" if last else "no checkpoint was written yet")

    def _evaluation(self) -> EvalResult:
        assert self.plan.eval is not None
        return run_evaluation(self.session, self.plan.eval, self.config.data.workers, self.plan.eval_scalars)

    def _evaluate(self) -> dict[str, float]:
        found = self._evaluation()
        self.evaluated = metrics_of(found)
        epoch = self.done // self.plan.batches
        self.log.write("eval", self.done, epoch, {**self.evaluated, "rows": found.rows})
        return self.evaluated

    # Saving

    def _position(self) -> Position:
        epoch, batch = divmod(self.done, self.plan.batches)
        return Position(
            step=self.done,
            epoch=epoch,
            batch=batch,
            seed=self.config.train.seed,
            rows=self.plan.train.rows,
            batch_size=self.plan.batch,
            interface=self.interface_digest,
            dslc=VERSION,
            skipped=self.nonfinite.count,
            best_step=self.best.step,
            best_value=self.best.text,
            means=self.means.state(),
            config=self.config.training_values(),
            stop_value=self.patience.value,
            stop_stale=self.patience.stale,
        )

    def _stopped(self, code: int) -> int:
        """Save after a signal. A failure is reported; the exit code stays the signal's."""
        try:
            self.saver.save(self._position(), must=True)
        except DslcError as error:
            self.report.warn(f"not saved: {error.message}")
        else:
            self.report.line(f"saved {self.saver.last}")
        return code

    # The end

    def close(self) -> None:
        """Draw the curves a last time, also on the terminal."""
        self.picture.draw()
        self.report.plot(self.picture.text())

    def _progress(self) -> None:
        metrics = self.evaluated if self.plan.eval is not None else self.means_of_epoch
        self.record.progress(self.done, self.done // self.plan.batches, metrics, self.best.told())

    def keep(self) -> tuple[Path, dict[str, float]]:
        """Save the best weights, else the last, in the run's folder and keep them in the session; returns the path and
        their metrics."""
        wanted = self.config.save.best
        chosen = None if wanted is None or self.best.step is None else self.saver.best(self.best.step)
        self.which = "last" if chosen is None else f"best ({wanted})"
        step = self.done
        if chosen is not None:
            install(self.session, chosen)
            step = chosen.position.step
        metrics = self.evaluated
        if self.plan.eval is not None and not (step == self.done and self.evaluated):
            metrics = metrics_of(self._evaluation())
        rule = wanted or Best("loss", highest=False)
        value = metrics.get(rule.metric)
        if self.plan.eval is None and chosen is not None:
            value = self.best.value  # the mean of the epoch that ended there
        score = Score(label(self.folder), step, rule.metric, rule.highest, value, identity(self.config, self.plan))
        path = self.saver.keep(score)
        self.record.kept(score)
        return path, metrics
