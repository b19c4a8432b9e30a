"""Runs ``dslc train`` and ``dslc eval`` on a session.

A run is a function of artifact, configuration, data and seed. Its position is the number of steps done. A run resumed
from a checkpoint takes the same batches, learning rates and random draws as the uninterrupted run, so its weights and
log values are equal bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK, EXIT_SIGINT, InputError
from dslc.base.turns import Always
from dslc.runtime.config.config import Config
from dslc.runtime.history.publication import offer
from dslc.runtime.session.results import EvalResult
from dslc.runtime.sinks.known import require_sinks
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.progress import reporter
from dslc.runtime.train.resume import continued, fitted_of_run
from dslc.runtime.train.run import Run
from dslc.runtime.train.rundir import choose_run, label, run_lock
from dslc.runtime.train.setup import Plan, eval_scalars, open_eval, planned, run_evaluation
from dslc.runtime.train.signals import StopNow, StopRequest
from dslc.runtime.train.start import start_from
from dslc.runtime.train.trainable import Trainable


@dataclass(frozen=True)
class TrainResult:
    """How a run ended. ``exit_code`` is 0 if it is complete, 130 or 143 after a signal.

    ``weights``: the weights of a complete run, in its folder. ``published``: the published file if it holds these
    weights, else None. ``metrics`` are those of these weights if they were evaluated, else those of the last evaluation
    (with ``loss``). ``started``: what became of each tensor of ``start.weights``.
    """

    exit_code: int
    steps: int
    run_dir: Path
    checkpoint: Path | None = None
    weights: Path | None = None
    published: Path | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: Mapping[str, Any] | None = None


def train(
    config: Config,
    session: Trainable,
    out_dir: Path | None,
    resume: bool | str = False,
    console: TextIO | None = None,
    plan: Plan | None = None,
    *,
    allow_changes: bool = False,
) -> TrainResult:
    """Train, and keep the weights in the run's folder; ``session`` holds them afterwards. If they are better than
    ``out_dir/NAME.safetensors``, or if there is none, they are published there; ``out_dir`` None: never.

    ``resume``: True for the newest run, which starts again if it has no checkpoint, or a run's name. A resumed run
    must have the configuration of its checkpoint, except for ``train.epochs``, unless ``allow_changes``. ``session``
    was loaded with ``seed=config.train.seed`` and has weights, usually initial ones, which a resumed run does not need.
    Progress is shown on ``console`` (stdout by default). ``plan``: the data, if it was opened before the build.
    Raises NumericError R501 for a NaN or Inf, ResourceError R402 if three checkpoints in a row or the weights cannot be
    written, R404 if the run is locked by another process, ArtifactError R307 if there is nothing to resume or the
    configuration has changed, and the errors of ``plan_run``.
    """
    report = reporter(console if console is not None else sys.stdout)
    stop = StopRequest()
    require_sinks(config.save.sinks)
    resume = continued(config, resume, report.line, allow_changes=allow_changes)
    with Always(stop.restore), stop:
        plan = planned(config, session, plan, report.line, fitted_of_run(config, resume) if resume else None)
        started = _prepare(config, session, bool(resume), report.line)  # if it raises, no folder has been created
        folder = choose_run(config.save.dir, root=config.save.root, resume=resume)
        if folder != config.save.dir and not resume:
            report.line(f"{config.save.dir} holds an earlier run; this one goes to {folder} (--resume continues it)")
        with run_lock(folder).scope() as scope, scope:
            run = Run(config, session, plan, folder, report, allow_changes)
            run.begin(bool(resume))
            try:
                done = _completed(run, stop, None if out_dir is None else Path(out_dir))
                return replace(done, started=started)
            except BaseException as error:
                run.record.failed(error)
                raise
            finally:
                _end_sinks(run, stop)


def _completed(run: Run, stop: StopRequest, out_dir: Path | None) -> TrainResult:
    """Train to the end or a signal; keep and publish the weights of a complete run."""
    try:
        code = run.loop(stop)
    except StopNow as now:
        run.report.warn("stopped immediately; nothing was saved since the last checkpoint")
        run.record.end("stopped")
        run.sinks.hurry()
        return TrainResult(now.exit_code, run.done, run.folder, run.saver.last)
    finally:
        run.report.stop()
    if code != EXIT_OK:
        run.record.end("stopped")
        return TrainResult(code, run.done, run.folder, run.saver.last, metrics=run.evaluated)
    run.close()
    weights, metrics = run.keep()
    run.record.end("finished")
    published = None
    if out_dir is not None:
        target = out_dir / f"{run.session.name}.safetensors"
        published = target if _publish(run, weights, target) else None
    return TrainResult(code, run.done, run.folder, run.saver.last, weights, published, metrics)


def _publish(run: Run, weights: Path, target: Path) -> bool:
    """Publish the kept weights if they are better than the published ones; returns whether they are, and says it."""
    found = offer(weights, target, run.report.warn)
    kept = f"; the previous ones are in {found.previous.name}" if found.previous is not None else ""
    if found.refused is None:
        run.report.line(f"published the {run.which} weights: {target}{kept}")
    else:
        run.report.line(f"not published: {found.refused}; `dslc publish {label(run.folder)}` publishes them")
    return found.refused is None


def _end_sinks(run: Run, stop: StopRequest) -> None:
    """Wait for the sinks, until the user interrupts that. What they lack changes nothing of the run."""
    state = str(run.record.values["state"])
    code = {"finished": EXIT_OK, "stopped": stop.exit_code or EXIT_SIGINT}.get(state, EXIT_DIFFERENCE)
    known = stop.exit_code
    try:
        run.sinks.close(state, code, lambda: stop.exit_code != known)
    except StopNow:
        run.report.warn("stopped while sinks were written")


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
