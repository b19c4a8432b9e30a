"""Candidates on a fake GPU in a real child process: bad ones are rejected, and the others go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from places import with_support
from tuning import planted

from dslc.base.cache import Cache
from dslc.compiler.ir.choice import Choice
from dslc.tune.client import Client, Refused
from dslc.tune.judge import Opening, Trial, judge
from dslc.tune.supply import compile_comparer


@pytest.fixture(autouse=True)
def _support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", with_support()["PYTHONPATH"])


@pytest.fixture
def client() -> Iterator[Client]:
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)  # what else runs takes its share of a candidate's time
    with Client({"gpu": 0}, planted.WORKER, patience=3.0 * max(1.0, busy)) as made:
        yield made


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    return Opening(_written(tmp_path, "good"), compile_comparer("sm_90", Cache.open(), tmp_path), "sm_90")


def _written(folder: Path, symbol: str) -> Path:
    path = folder / symbol
    path.write_bytes(planted.container(symbol))
    return path


def _trial(folder: Path, symbol: str) -> Trial:
    return Trial(Choice("own", symbol), _written(folder, symbol))


def test_the_right_ones_are_timed(client: Client, opening: Opening, tmp_path: Path) -> None:
    found = judge(client, opening, [_trial(tmp_path, "slow"), _trial(tmp_path, "good")], 0.2)
    assert not found.rejected
    seconds = {way.choice.algorithm: way.seconds for way in found.times}
    assert seconds["slow"] > 5 * seconds["good"] > 0
    assert found.errors[Choice("own", "good")] == 0


@pytest.mark.parametrize("bad", planted.BAD)
def test_a_bad_one_is_rejected_with_the_reason(bad: str, client: Client, opening: Opening, tmp_path: Path) -> None:
    trials = [_trial(tmp_path, name) for name in ("good", bad, "slow")]
    found = judge(client, opening, trials, 0.1)
    assert [way.choice.algorithm for way in found.times] == ["good", "slow"]
    [reason] = found.rejected
    assert reason.startswith(f"own {bad}: ") and planted.BAD[bad][1] in reason


def test_bits_may_differ_if_nobody_asks_for_the_same(client: Client, opening: Opening, tmp_path: Path) -> None:
    trials = [_trial(tmp_path, name) for name in ("good", "fickle")]
    found = judge(client, replace(opening, deterministic=False), trials, 0.1)
    assert [way.choice.algorithm for way in found.times] == ["good", "fickle"] and not found.rejected


@pytest.mark.slow
def test_all_bad_ones_together(client: Client, opening: Opening, tmp_path: Path) -> None:
    found = judge(client, opening, [_trial(tmp_path, name) for name in ("good", *planted.BAD, "slow")], 0.1)
    assert [way.choice.algorithm for way in found.times] == ["good", "slow"]
    assert len(found.rejected) == len(planted.BAD)
    assert client.starts == 4  # a crash, a lost GPU and a hanging kernel cost a process each


@pytest.mark.parametrize("bad", ["crash", "hang", "lost", "beyond"])
def test_a_bad_reference_refuses_the_problem_alone(bad: str, client: Client, opening: Opening, tmp_path: Path) -> None:
    wrong = Opening(_written(tmp_path, bad), opening.comparer, "sm_90")
    with pytest.raises(Refused, match=r"reference|the GPU is lost"):
        judge(client, wrong, [_trial(tmp_path, "good")], 0.1)
    assert judge(client, opening, [_trial(tmp_path, "good")], 0.1).times


def test_a_reference_of_a_loop_must_be_finite(client: Client, opening: Opening, tmp_path: Path) -> None:
    """Of a loop that grows without bound, two right ways may reach infinity at different steps."""
    trials = [_trial(tmp_path, "infinite")]
    path = tmp_path / "reference"
    path.write_bytes(planted.container("infinite"))
    assert not judge(client, replace(opening, path=path), trials, 0.1).rejected
    path.write_bytes(planted.container("infinite", finite=True))
    with pytest.raises(Refused, match="2 elements of its result 0 are not finite for random values"):
        judge(client, replace(opening, path=path), trials, 0.1)
    path.write_bytes(planted.container("good", finite=True))
    assert not judge(client, replace(opening, path=path), [_trial(tmp_path, "good")], 0.1).rejected


def test_a_problem_that_does_not_fit_is_refused(
    opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSLC_TEST_GPU_BYTES", str(1 << 20))
    with Client({"gpu": 0}, planted.WORKER) as client, pytest.raises(Refused, match="memory"):
        judge(client, opening, [_trial(tmp_path, "good")], 0.1)
