"""Steps whose results come late, as a GPU's do: the run is the same, and it does not wait for each of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.fake_session import FakeSession

from dslc.base.errors import NumericError
from dslc.runtime.config.load import load_config
from dslc.runtime.session.results import LateStepResult, StepResult
from dslc.runtime.train.loop import train
from dslc.runtime.train.metrics import read_log
from dslc.runtime.train.run import LOG_NAME


class LateSession(FakeSession):
    """Notes when a step is made and when its results are looked at."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.order: list[tuple[str, int]] = []

    def train_step(self, /, **given: Any) -> StepResult:
        now = super().train_step(**given)
        self.order.append(("made", now.step))

        def read() -> StepResult:
            self.order.append(("read", now.step))
            return now

        return LateStepResult(now.step, read)


def run(folder: Path, kind: type[FakeSession], **poison: Any) -> tuple[FakeSession, list[Any]]:
    config = load_config(folder / "dslc.yaml", {})
    session = kind(config.train.seed)
    session.poison.update({int(step[1:]): what for step, what in poison.items()})
    done = train(config, session, folder / "build", False, io.StringIO())
    log = read_log(done.run_dir / LOG_NAME)
    return session, [{k: v for k, v in line.items() if k not in ("seconds", "samples_per_s", "time")} for line in log]


def test_a_run_with_late_results_is_the_same(project: Path) -> None:
    late, log = run(project, LateSession)
    now, expected = run(project, FakeSession)
    assert log == expected and len(log) > 4
    assert all((late.state[n] == now.state[n]).all() for n in now.state)
    assert isinstance(late, LateSession)
    steps = [step for what, step in late.order if what == "made"]
    assert [step for what, step in late.order if what == "read"] == steps  # each once, in order
    delay = [late.order.index(("read", s)) - late.order.index(("made", s)) for s in steps]
    assert delay[0] == 2 and set(delay) <= {1, 2, 3}  # after the next step is launched, or at once if something is due


def test_a_step_that_is_not_finite_is_told_by_its_own_number(project: Path) -> None:
    with pytest.raises(NumericError, match="not finite in step 2") as caught:
        run(project, LateSession, s2="loss")
    assert caught.value.code == "R501"
    with pytest.raises(NumericError, match="not finite in step 3"):
        run(project, LateSession, s3="w")


def test_a_late_result_is_read_once_and_compares_with_one_at_hand() -> None:
    read: list[int] = []

    def now() -> StepResult:
        read.append(1)
        return StepResult(0.5, {"accuracy": 1.0}, 3, None)

    late = LateStepResult(3, now)
    assert late.step == 3 and not read
    assert late == StepResult(0.5, {"accuracy": 1.0}, 3, None) == late and late != StepResult(0.25, {}, 3, None)
    assert (late.loss, late.metrics, late.nonfinite) == (0.5, {"accuracy": 1.0}, None) and len(read) == 1
    assert repr(late) == repr(StepResult(0.5, {"accuracy": 1.0}, 3, None)) and isinstance(late, StepResult)


class TogetherSession(LateSession):
    """Takes several steps at once."""

    steps_per_launch = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.launches: list[int] = []

    def train_steps(self, batches: Any, /) -> list[StepResult]:
        found = super().train_steps(batches)
        self.launches.append(len(found))
        return found


def test_steps_that_are_taken_together_end_where_something_is_due(project: Path) -> None:
    together, log = run(project, TogetherSession)
    now, expected = run(project, FakeSession)
    assert log == expected and together.rates == now.rates and together.betas == now.betas
    assert all((together.state[n] == now.state[n]).all() for n in now.state)
    assert all(np.array_equal(a, b) for a, b in zip(together.seen, now.seen, strict=True))
    assert isinstance(together, TogetherSession)
    assert max(together.launches) == 3 and min(together.launches) == 2  # every 4 steps there is a checkpoint
    made, read = ([step for what, step in together.order if what == which] for which in ("made", "read"))
    assert made == read == list(range(len(made)))
