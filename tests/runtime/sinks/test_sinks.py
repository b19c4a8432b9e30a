"""A run and its sinks: each gets what the log has, once, whatever happens; none stops the training."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sinking.fake_packages import Server
from training.fake_session import FakeSession

from dslc.runtime.config.load import load_config
from dslc.runtime.sinks import known
from dslc.runtime.sinks import sinks as module
from dslc.runtime.train.loop import TrainResult, train
from dslc.runtime.train.metrics import read_log

NAMES = sorted(known.OWN)


def run(
    folder: Path, *, resume: bool = False, session: FakeSession | None = None, **flags: Any
) -> tuple[TrainResult, str]:
    config = load_config(folder / "dslc.yaml", {key.replace("__", "."): value for key, value in flags.items()})
    console = io.StringIO()
    session = session or FakeSession(config.train.seed)
    return train(config, session, folder / "build", resume, console), console.getvalue()


def logged(folder: Path) -> list[tuple[str, int]]:
    """The numbers of the log by name and step."""
    return [
        (f"{entry['kind']}/{name}", entry["step"])
        for entry in read_log(folder / "runs/toy/log.jsonl")
        if entry["kind"] != "nonfinite"
        for name in entry
        if name not in ("kind", "step", "epoch", "rows")
    ]


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs/toy/run.json").read_text())
    return found


def names(points: list[tuple[str, int, float]]) -> list[tuple[str, int]]:
    return sorted((name, step) for name, step, _ in points)


@pytest.mark.parametrize("name", NAMES)
def test_a_sink_gets_what_the_log_has(name: str, project: Path, installed: Callable[[str], Server]) -> None:
    server = installed(name)
    result, text = run(project, **{f"save.sinks.{name}": True})
    assert result.exit_code == 0 and "warning" not in text
    assert names(server.only) == sorted(logged(project)) and len(server.only) > 50
    values = {
        (f"{e['kind']}/{n}", e["step"]): v for e in read_log(project / "runs/toy/log.jsonl") for n, v in e.items()
    }
    assert all(values[key, step] == value for key, step, value in server.only), "the numbers are those of the log"
    [states] = server.states.values()
    assert states[-1] in (0, "FINISHED", "finished", "closed")
    if name in ("wandb", "mlflow"):
        [id] = server.points
        flat = {"train.epochs": "4"} if name == "mlflow" else {"train": {**server.config[id]["train"], "epochs": 4}}
        assert server.config[id].items() >= flat.items() and server.given[id]["name"] == "toy"
    if name == "wandb":
        assert f"W&B: https://wandb.example/{id}\n" in text and record(project)["tracking"] == {"id": id}


@pytest.mark.parametrize("at", [1, 3, 7, 13, 24])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_goes_on_in_the_same_remote_run(
    name: str, at: int, project: Path, installed: Callable[[str], Server]
) -> None:
    server, session = installed(name), FakeSession(3)

    def broken(step: int) -> None:
        if step == at - 1:
            raise RuntimeError("the machine is gone")

    session.after_step = broken
    with pytest.raises(RuntimeError, match="the machine is gone"):
        run(project, session=session, **{f"save.sinks.{name}": True})
    [states] = server.states.values()
    assert states[-1] in (1, "FAILED", "finished", "closed") and len(server.only) == len(logged(project))
    first, resumes = record(project).get("tracking"), at >= 4  # the first checkpoint
    if at == 13:  # as if the process had been killed before it could save: the checkpoint is earlier than the points
        newest = max((project / "runs/toy/checkpoints").iterdir())
        newest.unlink()
    run(project, resume=resumes, **{f"save.sinks.{name}": True})
    points = server.only if resumes or name == "tensorboard" else [*server.points.values()][-1]
    assert names(points) == sorted(logged(project))
    assert (record(project).get("tracking") == first) == (resumes or name == "tensorboard")


def test_w_and_b_without_a_server_writes_the_whole_run_again(
    project: Path, installed: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb keeps the last points in memory, so the folder of the first part may lack some."""
    server, session = installed("wandb"), FakeSession(3)
    server.online = False
    session.after_step = lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 9 else None
    options = {"save.sinks.wandb": {"mode": "offline"}}
    result, _ = run(project, session=session, **options)
    assert result.exit_code == 130 and [*server.states.values()] == [["running", 130]]
    first = len(server.only)
    run(project, resume=True, **options)
    [states] = server.states.values()
    assert names(server.only[first:]) == sorted(logged(project)) and states[-1] == 0
    assert server.logins == 0, "nobody has to log in"


@pytest.mark.parametrize(("name", "expected"), [("wandb", 143), ("mlflow", "KILLED")])
def test_a_signal_ends_the_remote_run(
    name: str, expected: Any, project: Path, installed: Callable[[str], Server]
) -> None:
    server, session = installed(name), FakeSession(3)
    session.after_step = lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 9 else None
    result, _ = run(project, session=session, **{f"save.sinks.{name}": True})
    [states] = server.states.values()
    assert result.exit_code == 143 and states[-1] == expected


def test_a_run_that_is_not_finite_has_failed_remotely(project: Path, installed: Callable[[str], Server]) -> None:
    server, session = installed("mlflow"), FakeSession(3)
    session.poison = {4: "loss"}
    with pytest.raises(Exception, match="not finite"):
        run(project, session=session, **{"save.sinks.mlflow": True})
    assert [*server.states.values()] == [["RUNNING", "FAILED"]]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_not_finite(name: str, project: Path, installed: Callable[[str], Server]) -> None:
    server, session = installed(name), FakeSession(3)
    session.poison = {3: "loss"}
    infinite = session.evaluate

    def evaluated(**given: Any) -> Any:
        found = infinite(**given)
        return type(found)(math.inf, found.metrics, found.rows)

    session.evaluate = evaluated  # type: ignore[method-assign]
    result, _ = run(project, session=session, train__on_nan="skip 1", **{f"save.sinks.{name}": True})
    assert result.exit_code == 0
    found = {(key, step): value for key, step, value in server.only}
    assert {key for key, _ in found} >= {"step/accuracy", "eval/accuracy"}
    keeps = {"tensorboard": (False, False), "mlflow": (True, False)}.get(name, (True, True))
    assert (("step/loss", 4) in found, ("eval/loss", 6) in found) == keeps
    assert not keeps[0] or math.isnan(found["step/loss", 4])


# What goes wrong


class Stuck:
    """A server that does not answer until it is told to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.points: list[Any] = []

    def write(self, points: Any) -> None:
        assert self.answer.wait(60)
        self.points += points

    def close(self, state: str, exit_code: int) -> None:
        self.points.append(state)


def test_the_training_does_not_wait_for_a_sink(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, session, steps = Stuck(), FakeSession(3), list[int]()
    monkeypatch.setattr(module, "opener", lambda name: lambda about, **options: stuck)
    monkeypatch.setattr(known, "opener", lambda name: lambda about: stuck)

    def stepped(step: int) -> None:
        steps.append(step)
        if step == 23:  # the last one was taken while the sink waited
            stuck.answer.set()

    session.after_step = stepped
    _, text = run(project, session=session, **{"save.sinks.mine": True})
    assert steps == [*range(24)] and "warning" not in text
    assert stuck.points[-1] == "finished" and len(stuck.points) - 1 == len({*map(str, read_log(log_of(project)))})


def test_a_sink_that_never_answers_is_left_behind(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck()
    monkeypatch.setattr(module, "opener", lambda name: lambda about, **options: stuck)
    monkeypatch.setattr(known, "opener", lambda name: lambda about: stuck)
    monkeypatch.setattr(module, "_PATIENCE", 0.3)
    result, text = run(project, **{"save.sinks.mine": True})
    assert result.exit_code == 0 and "warning: mine has not answered: it has no points yet" in text
    stuck.answer.set()
    for thread in threading.enumerate():
        if thread.name == "dslc-sink-mine":
            thread.join(10)
    assert "finished" not in stuck.points, "what was left behind does nothing more"


def log_of(folder: Path) -> Path:
    return folder / "runs/toy/log.jsonl"


def test_ctrl_c_ends_the_wait_for_a_sink(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck()
    monkeypatch.setattr(module, "opener", lambda name: lambda about, **options: stuck)
    monkeypatch.setattr(known, "opener", lambda name: lambda about: stuck)
    monkeypatch.setattr(module, "_SAID", 0.0)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result, text = run(project, **{"save.sinks.mine": True})
    timer.join()
    stuck.answer.set()
    assert result.exit_code == 0 and result.weights is not None, "the run was complete"
    assert "waiting for mine; Ctrl-C goes on" in text and "mine has not answered" in text


@pytest.mark.parametrize("at", ["open", "write", "close"])
@pytest.mark.parametrize("error", [OSError("no route to host"), SystemExit(3), ValueError(f"bad {object()!r}")])
def test_a_sink_that_fails_says_so_once(
    at: str, error: BaseException, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = run(project, save__dir=str(project / "runs/plain"))

    def failing(*args: object, **options: object) -> None:
        raise error

    sink = SimpleNamespace(write=lambda points: None, close=lambda state, code: None)
    if at != "open":
        setattr(sink, at, failing)
    opened = failing if at == "open" else lambda about, **options: sink
    monkeypatch.setattr(module, "opener", lambda name: opened)
    monkeypatch.setattr(known, "opener", lambda name: lambda about: sink)
    result, text = run(project, **{"save.sinks.mine": True})
    assert result.exit_code == 0 and result.metrics == expected.metrics
    assert text.count(f"warning: mine gets no more of this run: {type(error).__name__}: ") == 1
    assert text.count("warning") == 1 and "0x" not in text


def test_what_a_sink_prints_is_no_result(project: Path, installed: Callable[[str], Server], capsys: Any) -> None:
    installed("trackio")
    before = sys.stdout
    run(project, **{"save.sinks.trackio": True})
    print("a result")
    found = capsys.readouterr()
    assert found.out == "a result\n" and "Trackio project initialized" in found.err and sys.stdout is before


def test_a_hostile_record_names_no_remote_run(project: Path, installed: Callable[[str], Server]) -> None:
    server, session = installed("mlflow"), FakeSession(3)
    session.after_step = lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 9 else None
    run(project, session=session, **{"save.sinks.mlflow": True})
    values = record(project)
    for bad in ("' or tags.a != '", 3, None, "A" * 16, "a" * 17, ["a"]):
        values["tracking"] = {"id": bad}
        (project / "runs/toy/run.json").write_text(json.dumps(values))
        run(project, resume=True, **{"save.sinks.mlflow": True})
        fresh = record(project)["tracking"]["id"]
        assert len(fresh) == 16 and fresh != bad
    assert len(server.points) == 7, "each got a run of its own"
