"""Schedules: the factor of every step, and the readings of durations."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.config.schedule import Duration, Schedule, parse_duration


@pytest.mark.parametrize(
    ("text", "steps", "shown"),
    [
        ("1 epoch", 10, "1 epoch"),
        ("2 epochs", 20, "2 epochs"),
        ("0.5 epochs", 5, "0.5 epochs"),
        ("0.26 epochs", 3, "0.26 epochs"),
        ("500 steps", 500, "500 steps"),
        ("1 step", 1, "1 step"),
        ("7steps", 7, "7 steps"),
    ],
)
def test_durations(text: str, steps: int, shown: str) -> None:
    assert parse_duration(text).steps(10) == steps and str(parse_duration(text)) == shown


@pytest.mark.parametrize(
    "text",
    ["", "5", "epochs", "five epochs", "-1 epoch", "1.5 steps", "1 epoch 2", "inf epochs", "1\nepoch", "٣ epochs"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def factors(schedule: Schedule, steps: int, total: int | None = None) -> list[float]:
    curve = schedule.resolve(4, total or steps)
    return [curve.factor(step) for step in range(steps)]


WARM = Duration(4, "steps")


def test_constant() -> None:
    assert factors(Schedule(), 3) == [1, 1, 1]
    assert factors(Schedule(warmup=WARM), 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_warmup_of_epochs() -> None:
    assert factors(Schedule(warmup=Duration(0.5, "epochs")), 3) == [0.5, 1, 1]


def test_linear() -> None:
    assert factors(Schedule("linear", end=0.2), 4) == pytest.approx([1, 0.8, 0.6, 0.4], abs=1e-15)
    short = factors(Schedule("linear", end=0.5, over=Duration(2, "steps")), 5)
    assert short == [1, 0.75, 0.5, 0.5, 0.5]
    assert factors(Schedule("linear", end=3.0), 2) == [1, 2], "it may rise"


def test_cosine() -> None:
    found = factors(Schedule("cosine", end=0.1, warmup=WARM), 12)
    assert found[:4] == [0.25, 0.5, 0.75, 1]
    assert found[4:] == [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    assert found[8] == pytest.approx(0.55) and found == sorted(found[:5]) + sorted(found[5:], reverse=True)


def test_step() -> None:
    every = Schedule("step", factor=0.5, every=Duration(1, "epochs"), warmup=Duration(2, "steps"))
    assert factors(every, 12) == [0.5, 1] + [1] * 4 + [0.5] * 4 + [0.25] * 2
    at = Schedule("step", factor=0.1, at=(Duration(1, "epochs"), Duration(6, "steps")))
    assert factors(at, 8) == pytest.approx([1] * 4 + [0.1] * 2 + [0.01] * 2)


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear", "step"])
def test_no_length_divides_by_zero(kind: str) -> None:
    every = Duration(0.001, "epochs") if kind == "step" else None
    for warmup in (0, 1, 5):
        schedule = Schedule(kind, warmup=Duration(warmup, "steps"), every=every)  # type: ignore[arg-type]
        assert all(math.isfinite(value) for value in factors(schedule, 8, total=1))


def test_a_factor_every_step() -> None:
    for text, every in (("1 step", 1), ("2 steps", 2), ("0.1 epochs", 1)):
        assert Schedule("step", every=parse_duration(text)).resolve(4, 100).every == every


@pytest.mark.parametrize(
    ("text", "flags", "rate"),
    [
        ("lr: 0.01", {}, 0.01),
        ("lr: {cosine: {base: 0.02}}", {}, 0.02),
        ("base_lr: 0.1", {}, 0.1),
        ("base_lr: 0.1, lr: cosine", {}, 0.1),
        ("lr: cosine", {}, None),  # the model's
        ("base_lr: 0.1", {"train.lr": "0.3"}, 0.3),
        ("lr: 0.3", {"train.base_lr": "0.1"}, 0.1),  # `dslc train --lr 0.1`
        ("base_lr: 0.1, lr: 0.3", {}, "refused"),
        ("base_lr: 0.1, lr: {step: {base: 1, every: 1 epoch}}", {}, "refused"),
        ("epochs: 1", {"train.base_lr": "0.1", "train.lr": "0.3"}, "refused"),
    ],
)
def test_a_number_is_the_learning_rate_itself(
    text: str, flags: dict[str, str], rate: float | str | None, tmp_path: Path
) -> None:
    (tmp_path / "dslc.yaml").write_text(f"model: m.nn\ntrain: {{{text}}}\n")
    if rate == "refused":
        with pytest.raises(DataError, match=r"(?s)R104.*`train.base_lr` is .* and `train.lr` sets the learning rate"):
            load_config(tmp_path / "dslc.yaml", flags)
        return
    train = load_config(tmp_path / "dslc.yaml", flags).train
    assert next((x for x in (train.base_lr, train.lr.base) if x is not None), None) == rate
