"""Runs ``dslc train`` and ``dslc eval`` on a session.

A run is a function of artifact, configuration, data and seed. Its position is the number of steps done. A run resumed
from a checkpoint takes the same batches, learning rates and random draws as the uninterrupted run, so its weights and
log values are equal bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from dslc.base.errors import EXIT_OK, InputError
from dslc.base.turns import Always
from dslc.runtime.config.config import Config
from dslc.runtime.session.results import EvalResult
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.progress import reporter
from dslc.runtime.train.resume import fitted_of_run
from dslc.runtime.train.run import Run
from dslc.runtime.train.rundir import choose_run, run_lock
from dslc.runtime.train.setup import Plan, Trainable, eval_scalars, open_eval, planned, run_evaluation
from dslc.runtime.train.signals import StopNow, StopRequest
from dslc.runtime.train.start import start_from


@dataclass(frozen=True)
class TrainResult:
    """How a run ended. ``exit_code`` is 0 if it is complete, 130 or 143 after a signal.

    ``weights`` is the published file of a complete run; ``metrics`` are those of the published weights if they were
    evaluated, else those of the last evaluation (with ``loss``). ``started``: what became of each tensor of
    ``start.weights``.
    """

    exit_code: int
    steps: int
    run_dir: Path
    checkpoint: Path | None = None
    weights: Path | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: Mapping[str, Any] | None = None


def train(
    config: Config,
    session: Trainable,
    out_dir: Path,
    resume: bool = False,
    console: TextIO | None = None,
    plan: Plan | None = None,
) -> TrainResult:
    """Train, and publish the weights as ``out_dir/NAME.safetensors``; ``session`` holds them afterwards.

    ``session`` was loaded with ``seed=config.train.seed`` and has weights, usually initial ones; with ``resume`` it
    needs none. Progress is shown on ``console`` (stdout by default). ``plan``: the data, if it was opened before the
    build. Raises NumericError R501 for a NaN or Inf,
    ResourceError R402 if three checkpoints in a row or the weights cannot be written, R404 if the run is locked by
    another process, ArtifactError R307 if there is nothing to resume, and the errors of ``plan_run``.
    """
    report = reporter(console if console is not None else sys.stdout)
    stop = StopRequest()
    with Always(stop.restore), stop:
        plan = planned(config, session, plan, report.line, fitted_of_run(config) if resume else None)
        started = _prepare(config, session, resume, report.line)  # if it raises, no folder has been created
        folder = choose_run(config.save.dir, root=config.save.root, resume=resume)
        if folder != config.save.dir and not resume:
            report.line(f"{config.save.dir} holds an earlier run; this one goes to {folder} (--resume continues it)")
        with run_lock(folder).scope() as scope, scope:
            run = Run(config, session, plan, folder, report)
            run.begin(resume)
            try:
                code = run.loop(stop)
            except StopNow as now:
                report.warn("stopped immediately; nothing was saved since the last checkpoint")
                return TrainResult(now.exit_code, run.done, folder, run.saver.last, started=started)
            finally:
                report.stop()
            if code != EXIT_OK:
                return TrainResult(code, run.done, folder, run.saver.last, None, run.evaluated, started)
            run.close()
            weights, metrics = run.publish(Path(out_dir))
            return TrainResult(code, run.done, folder, run.saver.last, weights, metrics, started)


def _prepare(
    config: Config, session: Trainable, resume: bool, notice: Callable[[str], None]
) -> Mapping[str, Any] | None:
    """Prepare the session for the first step of a run; the state of a resumed run is restored later. Returns what
    ``start_from`` does, None without ``start.weights``."""
    if session.seed != config.train.seed:  # the steps draw from this seed, also after a resume
        raise InputError(
            "R105",
            f"the session's seed is {session.seed}, the run's {config.train.seed}",
            place="train.seed",
            help=f"load the artifact with seed={config.train.seed}",
        )
    if resume:
        return None
    if session.step != 0:
        raise InputError(
            "R105", f"the session has done {session.step} steps", place="train", help="load the artifact again"
        )
    return None if config.start.weights is None else start_from(config.start, session, notice)


def evaluate(
    config: Config, session: Trainable, console: TextIO | None = None, data: Dataset | None = None
) -> EvalResult:
    """Loss and metrics of the session's weights over ``data.eval``. ``data``: if it was opened before the build.

    Raises the errors of ``open_eval`` and the session."""
    if data is None:
        report = reporter(console if console is not None else sys.stdout)
        data = open_eval(config, session, session.weights.notes, report.line)
    return run_evaluation(session, data, config.data.workers, eval_scalars(config, session))
