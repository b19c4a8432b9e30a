"""Checks a configuration against a session and opens the data, so that errors appear before the first step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import BuildError, DataError
from dslc.base.turns import Always
from dslc.runtime.artifact.interface import Interface, Train
from dslc.runtime.artifact.reserved import EPOCH_STEPS
from dslc.runtime.config.config import Config
from dslc.runtime.config.idle import idle_settings
from dslc.runtime.config.schedule import Curve
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.source import Source
from dslc.runtime.session.results import EvalResult
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.eval_rows import eval_order, in_streams, require_batches
from dslc.runtime.train.fitted_data import require_same
from dslc.runtime.train.named import require_names, scalar_schedules, train_section
from dslc.runtime.train.open_dataset import DataSection
from dslc.runtime.train.tolerance import Tolerance
from dslc.runtime.train.trainable import Declared, Trainable

_LONGEST_RUN: Final = 2**53  # steps; f64 represents each number up to it
_LONGEST_EPOCH: Final = 2**24  # steps; f32, the dtype of arguments of a step, represents each number up to it


@dataclass(frozen=True)
class Plan:
    """A run in detail: data, lengths in steps, and the value of every scheduled scalar at every step.

    A step is one update of the weights; ``batch`` is its number of rows, those of all its micro-batches. ``interface``
    and ``sizes``: those for which the data was opened. ``part``: the rank of this process and the number of processes,
    if several train together."""

    interface: Interface
    sizes: Mapping[str, int]
    train: Dataset
    eval: Dataset | None
    batch: int
    batches: int
    total: int
    log_every: int
    eval_every: int
    save_every: int
    base_lr: float
    lr: Curve
    scalars: Mapping[str, tuple[float, Curve]]
    eval_scalars: Mapping[str, Any]
    part: tuple[int, int] = (0, 1)

    def of_part(self, rank: int, size: int) -> Plan:
        """The plan of one of several processes: it has the rows of its shards of each batch."""
        return replace(self, part=(rank, size))

    def tasks(self, config: Config, done: int) -> Iterator[tuple[NDArray[np.int64], int]]:
        """The rows and the epoch of each batch from step ``done`` to the end of the run; of this process's part."""
        rank, size = self.part
        own = slice(self.batch * rank // size, self.batch * (rank + 1) // size)
        order, of_epoch = self.train.index, -1
        for step in range(done, self.total):
            epoch, batch = divmod(step, self.batches)
            if epoch != of_epoch:
                shuffle = config.data.shuffle and not self.interface.states
                order, of_epoch = self.train.order(config.train.seed, epoch, shuffle=shuffle), epoch
                order = in_streams(order, self.batch) if self.interface.states else order
            yield order[batch * self.batch : (batch + 1) * self.batch][own], epoch

    def begin_step(self, session: Trainable, step: int) -> None:
        """At the start of an epoch, set the states that the model carries from step to step to their first values."""
        if self.interface.states and step % self.batches == 0:
            session.reset_state()

    def lr_at(self, step: int) -> float:
        return self.base_lr * self.lr.factor(step)

    def scalars_at(self, step: int) -> dict[str, Any]:
        found: dict[str, Any] = {name: base * curve.factor(step) for name, (base, curve) in self.scalars.items()}
        section = self.interface.train
        return found | ({EPOCH_STEPS: self.batches} if section is not None and section.epoch_metrics else {})


def plan_run(config: Config, session: Declared, notice: Callable[[str], None], fitted: Fitted | None = None) -> Plan:
    """Check the configuration against the interface of a session, or of a model before its build, and open the data.
    ``fitted``: what an earlier part of the run fitted, None at its start.

    Raises BuildError E0605 (the model has no train section), DataError R101 to R104 and R106.
    """
    interface = session.interface
    section = train_section(interface)
    require_names(config, interface)
    for line in idle_settings(config):
        notice(line)
    scalars = scalar_schedules(config, section)
    sizes = _sizes(session, "train_step")
    batch = section.parts * (sizes[interface.batch] if interface.batch is not None else 1)
    train, evaluation = _datasets(config, session, sizes, notice, fitted)
    batches = train.batches(batch)
    if batches == 0:
        raise _too_few_rows(train.rows, batch, section, interface.batch)
    if interface.states and interface.batch is not None:
        names = ", ".join(f"`{state.name}`" for state in interface.states)
        notice(f"{names}: carried from batch to batch, so row i of a batch continues row i of the one before")
    total = config.train.epochs * batches
    if total > _LONGEST_RUN:
        raise DataError("R104", f"a run of {total} steps", place="train.epochs", help="train for fewer epochs")
    if section.epoch_metrics and batches > _LONGEST_EPOCH:
        cause = f"an epoch of {batches} steps, of which `metrics epoch` counts at most {_LONGEST_EPOCH}"
        raise DataError("R104", cause, place="data.train", help="use larger batches, or `metrics { ... }`")
    base_lr = next(x for x in (config.train.base_lr, config.train.lr.base, section.lr) if x is not None)
    return Plan(
        interface=interface,
        sizes=sizes,
        train=train,
        eval=evaluation,
        batch=batch,
        batches=batches,
        total=total,
        log_every=max(1, config.train.log_every.steps(batches)),
        eval_every=max(1, config.train.eval_every.steps(batches)),
        save_every=max(1, config.save.every.steps(batches)),
        base_lr=base_lr,
        lr=config.train.lr.resolve(batches, total),
        scalars={name: (base, config.train.schedules[name].resolve(batches, total)) for name, base in scalars.items()},
        eval_scalars=scalars,
    )


def planned(
    config: Config,
    session: Trainable,
    plan: Plan | None,
    notice: Callable[[str], None],
    fitted: Fitted | None = None,
) -> Plan:
    """The plan that was made before the build, if it is one for this session; else a new one, as by ``plan_run``."""
    fits = plan is not None and (plan.interface, plan.sizes) == (session.interface, _sizes(session, "train_step"))
    return plan if plan is not None and fits else plan_run(config, session, notice, fitted)


def _too_few_rows(rows: int, batch: int, section: Train, dim: str | None) -> DataError:
    parts, smaller = section.accumulate, rows // section.parts * section.shards
    of = f", {parts} micro-batches of {batch // parts}" if parts > 1 else ""
    help = f"build for a smaller batch: --size {dim}={smaller}" if smaller else "use a smaller `accumulate`"
    if section.shards > 1:
        of, help = f", {section.shards} shards", help if smaller else "use fewer shards"
    return DataError("R106", f"{rows} rows do not fill one batch of {batch}{of}", place="data.train", help=help)


def _datasets(
    config: Config,
    session: Declared,
    sizes: Mapping[str, int],
    notice: Callable[[str], None],
    fitted: Fitted | None = None,
) -> tuple[Dataset, Dataset | None]:
    """The data to train on, and the evaluation data if configured. ``fitted``: None to fit the training rows."""
    whole = _open(config.data.train, "data.train", config, session, sizes, notice, fitted=fitted, training=True)
    if config.data.split is None:
        return whole, _eval(config, session, notice, whole.fitted) if config.data.eval else None
    _sizes(session, "eval_step")
    if session.interface.states:
        name = session.interface.states[0].name
        cause = f"`data.split` takes rows at random, but the state `{name}` is carried from one row to the next"
        raise DataError("R104", cause, place="data.split", help="name a file of its own in data.eval")
    trained, held = whole.parted(config.data.split)
    return trained, require_batches(session, held)


def open_eval(config: Config, session: Declared, notes: Mapping[str, str], notice: Callable[[str], None]) -> Dataset:
    """The evaluation data, encoded as the ``notes`` of the weights say. Raises DataError R101 to R103, R104 (none is
    configured, or other columns or another tokenizer than the weights') and R106."""
    train_section(session.interface)
    fitted = Fitted.of_notes(notes, "the weights") or Fitted()
    require_same(config.data.columns, fitted, "the weights")
    if config.data.split is not None:
        found = _datasets(config, session, _sizes(session, "eval_step"), notice, fitted)[1]
        assert found is not None
    else:
        found = _eval(config, session, notice, fitted)
    if found.tokenizer is not None:
        found.tokenizer.require_trained(notes)
    return found


def _eval(config: Config, session: Declared, notice: Callable[[str], None], fitted: Fitted) -> Dataset:
    sizes = _sizes(session, "eval_step")
    if not config.data.eval:
        help = "add `INPUT: FILE.npz:KEY` lines to it, or set `data.split: 0.1`"
        raise DataError("R104", "no evaluation data is configured", place="data.eval", help=help)
    found = _open(config.data.eval, "data.eval", config, session, sizes, notice, fitted=fitted, training=False)
    return require_batches(session, found)


def _open(
    sources: Mapping[str, Source],
    section: str,
    config: Config,
    session: Declared,
    sizes: Mapping[str, int],
    notice: Callable[[str], None],
    *,
    fitted: Fitted | None,
    training: bool,
) -> Dataset:
    return DataSection(
        sources,
        session.interface,
        sizes,
        section,
        check_finite=config.data.check_finite,
        notice=notice,
        seed=config.train.seed,
        training=training,
        augment=config.data.augment,
        described=config.data.columns,
        fitted=fitted,
        split=config.data.split,
        images=config.data.images,
        tokenizer=config.data.tokenizer,
        mix=config.data.mix,
        tolerance=Tolerance(config.data.on_bad.skip, lambda text: notice(f"warning: {text}")),
    ).open()


def run_evaluation(session: Trainable, data: Dataset, workers: int, scalars: Mapping[str, Any]) -> EvalResult:
    """Loss and metrics of the session's weights over all rows of the data, piece by piece."""

    feeds: list[Generator[Mapping[str, object], None, None]] = []

    order = eval_order(session, data)

    def read(spans: Sequence[tuple[int, int]]) -> Iterator[Mapping[str, object]]:
        feeds.append(data.feed(((order[start:stop], 0) for start, stop in spans), workers))
        return feeds[-1]

    def close() -> None:
        for feed in feeds:
            feed.close()

    with Always(close), Always(close):
        return session.evaluate_rows(len(order), read, **scalars)


def eval_scalars(config: Config, session: Declared) -> dict[str, Any]:
    """Float arguments in evaluation: their base values, so that the losses of different epochs are comparable."""
    return scalar_schedules(config, train_section(session.interface))


def _sizes(session: Declared, entry: str) -> dict[str, int]:
    """The dims of an entry's programs; sizes of one entry differ only in the batch dim."""
    programs = session.artifact.programs(entry)
    if not programs:
        raise BuildError(
            "E0605", f"the artifact has no `{entry}`", place=session.name, help="build it again: `dslc build`"
        )
    return dict(programs[0].sizes)
