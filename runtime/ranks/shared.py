"""Rank 0 leads a training, the other ranks follow it.

Rank 0 has the run: its folder, log, checkpoints and signals. It tells the others each step and evaluation before it
begins, with its numbers, so that nothing is decided twice. The others have the data and a session, and follow.
"""

from __future__ import annotations

import hashlib
import json
import platform
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.canonical import dumps
from dslc.base.errors import DataError
from dslc.base.failpoint import fail
from dslc.base.version import VERSION
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.config.config import Config
from dslc.runtime.cpu.levels import cpu_kind
from dslc.runtime.history.evaluation_data import contents_of
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.results import EvalResult, StepResult
from dslc.runtime.session.session import Session
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.setup import Plan, run_evaluation
from dslc.runtime.train.trainable import WeightsFile

_LONGEST: Final = 60  # characters of a value of the configuration in a message


class Leader:
    """Rank 0's session, as a run uses it: its steps are steps of all ranks. The state that rank 0 has at the first
    step, or was given since, is sent to the others before the next step."""

    def __init__(self, session: Session, group: Group) -> None:
        self.session, self._group = session, group
        self._fresh = False  # whether the others have this state
        self._whole: Mapping[str, NDArray[Any]] | None = None  # the state that was given, until the others have it

    @property
    def name(self) -> str:
        return self.session.name

    @property
    def interface(self) -> Any:
        return self.session.interface

    @property
    def artifact(self) -> Any:
        return self.session.artifact

    @property
    def weights(self) -> WeightsFile:
        return self.session.weights

    @property
    def seed(self) -> int:
        return self.session.seed

    @property
    def step(self) -> int:
        return self.session.step

    @property
    def steps_per_launch(self) -> int:
        return 1

    def train_step(self, /, *, lr: float | None = None, row: int | None = None, **inputs: object) -> StepResult:
        """One step of all ranks; ``inputs`` has the rows of this one."""
        self._send_state()
        section = self.session.interface.train
        names = () if section is None else section.scalars
        numbers = {name: float(inputs[name]) for name in names if name in inputs}  # type: ignore[arg-type]
        self._group.command({"do": "step", "step": self.session.step, "lr": lr, "row": row, "numbers": numbers})
        return self.session.train_step(lr=lr, row=row, **inputs)

    def train_steps(self, batches: Iterable[Mapping[str, Any]], /) -> list[StepResult]:
        return [self.train_step(**batch) for batch in batches]

    def evaluate_rows(
        self,
        rows: int,
        read: Callable[[Sequence[tuple[int, int]]], Iterable[Mapping[str, object]]],
        /,
        *,
        step: int = 0,
        **arguments: object,
    ) -> EvalResult:
        """An evaluation by all ranks, which share its pieces; ``read`` gives those of this one."""
        self._send_state()
        self._group.command({"do": "evaluate", "numbers": arguments})
        return self.session.evaluate_rows(rows, read, step=step, **arguments)

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        if self.session.divided:
            self._group.command({"do": "gather"})
        return self.session.state_tensors()

    def restore(self, tensors: Mapping[str, NDArray[Any]], step: int) -> None:
        self._fresh, self._whole = False, {name: np.asarray(array, order="C") for name, array in tensors.items()}
        self.session.restore(tensors, step)

    def reset_state(self) -> None:
        self._fresh, self._whole = False, None
        self.session.reset_state()

    def _send_state(self) -> None:
        """Give the others this rank's state, unless they have it."""
        if not self._fresh:
            tensors = self.state_tensors() if self._whole is None else self._whole
            self._group.command({"do": "restore", "step": self.session.step}, _in_order(self.session, tensors))
            self._fresh, self._whole = True, None

    def end(self, code: int) -> None:
        """Tell the others that the run is over, and their exit code."""
        self._group.command({"do": "end", "code": code})


def follow(config: Config, session: Session, plan: Plan, group: Group) -> int:
    """Do what rank 0 commands, until it ends; returns the exit code. Signals are rank 0's to handle."""
    table = {t["name"]: t for t in session.artifact.header["state"]["tensors"]}
    with ExitStack() as held:
        for number in (signal.SIGINT, signal.SIGTERM):
            held.callback(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        feed, at = None, -1
        while True:
            said = group.commanded()
            match said["do"]:
                case "restore":
                    tensors = {n: np.empty(t["shape"], numpy_dtype(t["dtype"])) for n, t in table.items()}
                    group.take(_in_order(session, tensors))
                    session.restore(tensors, int(said["step"]))
                case "gather":
                    fail("ranks.gather")
                    session.state_tensors()
                case "step":
                    if at != int(said["step"]):
                        if feed is not None:
                            feed.close()
                        at = int(said["step"])
                        feed = plan.train.feed(plan.tasks(config, at), config.data.workers)
                        held.callback(feed.close)
                    assert feed is not None
                    fail("ranks.step")
                    session.train_step(**next(feed), lr=said["lr"], row=said["row"], **said["numbers"])
                    at += 1
                case "evaluate":
                    assert plan.eval is not None
                    fail("ranks.evaluate")
                    run_evaluation(session, plan.eval, config.data.workers, said["numbers"])
                case _:
                    return int(said["code"])


def _in_order(session: Session, tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    return [tensors[t["name"]] for t in session.artifact.header["state"]["tensors"]]


def facts(config: Config, session: Session, plan: Plan) -> dict[str, str]:
    """What must be equal on all ranks, by name: digests, and versions of what computes."""
    header = session.artifact.header
    maker, vectors = cpu_kind()
    return {
        "the number of shards": str(session.interface.train.shards if session.interface.train else 1),
        "the artifact": session.artifact.id,
        "the lock": _digest(dumps(header.get("lock", {}))),
        **{f"`{name}`": _shown(value) for name, value in config.training_values().items()},
        **_contents(config),
        "the number of rows": str(plan.train.rows),
        "the data": _digest_of_data(plan.train),
        "the data to evaluate": "none" if plan.eval is None else _digest_of_data(plan.eval),
        "the version of dslc": VERSION,
        "the version of numpy": np.__version__,
        "the version of Python": platform.python_version(),
        "the machine": platform.machine(),
        "the maker of the CPU": maker,
        "the set of the CPU's vector instructions": _digest(vectors.encode()),
        "the device": session.device.partition(":")[0],
        **session.facts(),
    }


def _contents(config: Config) -> dict[str, str]:
    """Digests of the files, by field: a file that differs in the middle alone is not noticed."""
    sources = {"train": config.data.train, "eval": config.data.eval}
    return {
        f"the content of `data.{section}.{name}`": _digest(dumps(contents_of(source)))
        for section, of_section in sources.items()
        for name, source in of_section.items()
    }


def _digest_of_data(data: Dataset) -> str:
    columns = {name: [str(column.wanted.tensor), column.rows.count] for name, column in data.columns.items()}
    described = dumps({"columns": columns, "whole": sorted(data.whole), "notes": dict(data.fitted.notes())})
    return _digest(described + data.index.tobytes())


def _shown(value: object) -> str:
    """A value of the configuration, or a digest of a long one."""
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= _LONGEST else f"{_digest(text.encode())} (a digest)"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def require_shareable(config: Config) -> None:
    """DataError R104 for data whose rows depend on the other rows of the batch that one process reads."""
    for there, field, why in (
        (config.data.mix is not None, "data.mix", "mixes rows of a batch"),
        (config.data.on_bad.skip > 0, "data.on_bad", "replaces a bad row by another one of the batch"),
    ):
        if there:
            raise DataError("R104", f"`{field}` {why}, which several processes do not have whole", place=field,
                            help="train with one process, or remove it")  # fmt: skip
