"""Two diagnoses for a model that does not train: repeated steps on one batch, and the node of the first NaN."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TextIO

from dslc.base.errors import ArtifactError, NumericError
from dslc.base.turns import Always
from dslc.runtime.config.config import Config
from dslc.runtime.train.progress import reporter
from dslc.runtime.train.resume import fitted_of_run
from dslc.runtime.train.run import Run
from dslc.runtime.train.rundir import choose_run
from dslc.runtime.train.setup import Plan, planned
from dslc.runtime.train.start import start_from
from dslc.runtime.train.trainable import Trainable

_LEARNED = 0.1  # fraction of the first loss


@dataclass(frozen=True)
class Overfit:
    """The first and the last loss of ``steps`` steps on one batch."""

    first: float
    last: float
    steps: int

    @property
    def learned(self) -> bool:
        """True if the loss fell to a tenth, or vanished."""
        return self.last <= max(_LEARNED * abs(self.first), 1e-6)


@dataclass(frozen=True)
class NonfiniteStep:
    """The first step that was not finite, in a replay from step ``start``; ``what`` is the node, or None if all are
    finite."""

    step: int
    start: int
    what: object | None


class Watched(Trainable, Protocol):
    """A session whose steps can be inspected."""

    def find_nonfinite(
        self, /, *, lr: float | None = None, row: int | None = None, **inputs: object
    ) -> object | None: ...


def overfit_one_batch(
    config: Config, session: Trainable, steps: int, console: TextIO | None = None, plan: Plan | None = None
) -> Overfit:
    """Train only on the first batch, not augmented, at the base learning rate; nothing is saved or published.

    A model that cannot memorise one batch has a fault that more data will not fix. ``plan``: the data, if it was opened
    before the build. Raises NumericError R501 for a loss
    that is not finite, and the errors of ``plan_run``.
    """
    report = reporter(console if console is not None else sys.stdout)
    plan = planned(config, session, plan, report.line)
    _start(config, session, report.line)
    rows, _ = next(plan.tasks(config, 0))
    data = replace(plan.train, training=False)
    # Read once through the workers and copied: each step gets the same batch.
    feed = data.feed([(rows, 0)], config.data.workers)
    with Always(feed.close), Always(feed.close):
        batch = {name: array.copy() for name, array in next(feed).items()}
    losses: list[float] = []
    for step in range(steps):
        plan.begin_step(session, 0)
        result = session.train_step(lr=plan.base_lr, **batch, **plan.eval_scalars)
        losses.append(result.loss)
        if not (result.skipped or math.isfinite(result.loss)):
            raise NumericError(
                "R501",
                f"the loss is not finite in step {step} on one batch",
                place=result.nonfinite or "loss",
                help="try a lower learning rate (--lr)",
            )
        if step in (0, steps - 1) or (step + 1) % max(1, steps // 10) == 0:
            report.line(f"step {step + 1}/{steps}  loss {result.loss:.6g}")
    return Overfit(losses[0], losses[-1], steps)


def find_nan(
    config: Config, session: Watched, console: TextIO | None = None, plan: Plan | None = None
) -> NonfiniteStep | None:
    """Replay a run from its newest checkpoint, or from its start, to the first step that is not finite.

    That step is repeated one instruction at a time, to name the first whose result is not finite. None if the replay
    reaches the end of the run. The run's files are only read. Raises the errors of ``plan_run``.
    """
    report = reporter(console if console is not None else sys.stdout)
    try:
        folder = choose_run(config.save.dir, root=config.save.root, resume=True)
    except ArtifactError:
        plan = planned(config, session, plan, report.line)
        report.line("there is no checkpoint, so the run is replayed from its start")
        _start(config, session, report.line)
        start = 0
    else:
        plan = planned(config, session, plan, report.line, fitted_of_run(config))
        run = Run(config, session, plan, folder, report)
        run.restore()
        start = run.done
    feed = plan.train.feed(plan.tasks(config, start), config.data.workers)
    with Always(feed.close), Always(feed.close):
        for done in range(start, plan.total):
            batch: dict[str, Any] = {**next(feed), **plan.scalars_at(done)}
            plan.begin_step(session, done)
            before = session.state_tensors()
            result = session.train_step(lr=plan.lr_at(done), **batch)
            if result.skipped or (result.nonfinite is None and math.isfinite(result.loss)):
                continue
            report.line(f"step {done} is not finite; searching for the first node")
            session.restore(before, done)
            return NonfiniteStep(done, start, session.find_nonfinite(lr=plan.lr_at(done), **batch))
    return None


def _start(config: Config, session: Trainable, notice: Callable[[str], None]) -> None:
    if config.start.weights is not None:
        start_from(config.start, session, notice)
