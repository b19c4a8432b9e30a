"""Published weights change only for better ones on the same evaluation data, or on request; nothing is ever torn."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import SUPPORT
from training.fake_session import FakeSession, write_data

from dslc.base.errors import ArtifactError, DslcError, NumericError
from dslc.runtime.config.load import load_config
from dslc.runtime.history.folders import run_in
from dslc.runtime.history.publication import offer
from dslc.runtime.history.score import Score, score_of
from dslc.runtime.train.loop import TrainResult, train
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import RUN, of_metadata, to_metadata


def run(project: Path, *, resume: bool = False, publish: bool = True, **flags: Any) -> tuple[TrainResult, str]:
    config = load_config(project / "dslc.yaml", {key.replace("__", "."): value for key, value in flags.items()})
    console = io.StringIO()
    session = FakeSession(config.train.seed)
    return train(config, session, project / "build" if publish else None, resume, console), console.getvalue()


def published(project: Path) -> Path:
    return project / "build" / "toy.safetensors"


def test_a_worse_trial_does_not_replace_the_published_weights(project: Path) -> None:
    run(project)
    good = published(project).read_bytes()
    result, text = run(project, train__epochs=1)
    assert published(project).read_bytes() == good
    assert "not published: accuracy" in text and "`dslc publish toy-2` publishes them" in text
    assert result.published is None and result.weights == project / "runs" / "toy-2" / "weights.safetensors"
    assert tensorfile.read(result.weights).verified and score_of(result.weights).run == "toy-2"  # type: ignore[union-attr]


def test_better_weights_replace_the_published_ones_which_are_kept(project: Path) -> None:
    first, _ = run(project, train__epochs=1)
    worse = published(project).read_bytes()
    _, text = run(project, resume=True, train__epochs=1)
    previous = project / "build" / "toy.previous.safetensors"
    assert published(project).read_bytes() == worse and not previous.exists(), "equal weights replace nothing"
    second, text = run(project)
    assert second.published == first.published == published(project)
    assert "the previous ones are in toy.previous.safetensors" in text
    assert previous.read_bytes() == worse and published(project).read_bytes() == second.weights.read_bytes()  # type: ignore[union-attr]


def test_weights_that_cannot_be_kept_do_not_stop_better_ones(project: Path) -> None:
    run(project, train__epochs=1)
    (project / "build" / "toy.previous.safetensors").mkdir()
    result, text = run(project)
    assert "warning: the previous weights are not kept" in text
    assert result.published is not None and tensorfile.read(result.published).verified


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"save__best": "lowest accuracy"}, "cannot be compared"),
        ({"save__best": "null"}, "cannot be compared"),
        ({}, None),
    ],
)
def test_scores_of_other_metrics_are_not_compared(project: Path, flags: dict[str, Any], why: str | None) -> None:
    run(project, train__epochs=1)
    before = published(project).read_bytes()
    _, text = run(project, **flags)
    assert (published(project).read_bytes() == before) == (why is not None)
    assert why is None or (f"{why}" in text and "not published: " in text)


def _same_name_other_rows(project: Path) -> None:
    write_data(project, seed=6)


def _other_split(project: Path) -> None:
    lines = (project / "dslc.yaml").read_text().splitlines()
    (project / "dslc.yaml").write_text("\n".join("  split: 0.5" if "eval:" in line else line for line in lines))


@pytest.mark.parametrize("change", [_same_name_other_rows, _other_split])
def test_scores_on_other_evaluation_data_are_not_compared(project: Path, change: Any) -> None:
    run(project, train__epochs=1)
    before = published(project).read_bytes()
    change(project)
    _, text = run(project)
    assert "is from other evaluation data" in text and published(project).read_bytes() == before


@pytest.mark.parametrize("kind", ["without a score", "damaged", "no file of weights", "unreadable note"])
def test_published_weights_of_unknown_worth_are_never_replaced_silently(project: Path, kind: str) -> None:
    run(project)
    path = published(project)
    tensors = {"w": np.zeros((4, 3), "f4"), "b": np.zeros(3, "f4")}
    data = {
        "without a score": tensorfile.encode(tensors),
        "damaged": path.read_bytes().replace(b'toy\\"', b'tox\\"', 1),
        "no file of weights": b"mine",
        "unreadable note": tensorfile.encode(tensors, to_metadata({RUN: "{}"})),
    }[kind]
    path.write_bytes(data)
    _, text = run(project)
    assert "not published: " in text and path.read_bytes() == data
    result = offer(project / "runs" / "toy" / "weights.safetensors", path, pytest.fail, always=True)
    assert result.refused is None and path.read_bytes() != data and result.previous is not None
    assert result.previous.read_bytes() == data


def test_without_evaluation_the_first_weights_are_published_and_no_others(project: Path) -> None:
    lines = (project / "dslc.yaml").read_text().splitlines()
    (project / "dslc.yaml").write_text("\n".join(line for line in lines if "eval:" not in line))
    first, _ = run(project, save__best="null")
    second, text = run(project, save__best="null", train__epochs=5)
    assert first.published is not None and second.published is None and "they were not evaluated" in text


def test_a_run_that_shall_not_publish_does_not(project: Path) -> None:
    result, text = run(project, publish=False)
    assert result.published is None and not (project / "build").exists() and "published" not in text
    assert run_in(result.run_dir).values["weights"]["metric"] == "accuracy"


def test_a_score_does_not_follow_weights_that_are_saved_again(project: Path) -> None:
    result, _ = run(project)
    assert result.weights is not None
    assert RUN not in of_metadata(tensorfile.read(result.weights).metadata, "")


@pytest.mark.parametrize("value", [None, 0.5, float("nan"), float("inf"), -0.0])
def test_scores_survive_their_text(value: float | None) -> None:
    score = Score("a", 3, "loss", False, value, "d")
    assert repr(Score.decode(score.encode())) == repr(score)
    json.dumps(score.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 10**5,
     json.dumps({"run": 1, "step": 1, "metric": "", "highest": True, "value": None, "data": ""}),
     Score("a", -1, "loss", False, 1.0, "d").encode(),
     Score("a", 1, "loss", False, 1.0, "d").encode().replace("0x", "0y")],
)  # fmt: skip
def test_hostile_scores_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(tensorfile.encode({"w": np.zeros(2, "f4")}, to_metadata({RUN: text})))
    with pytest.raises(ArtifactError) as caught:
        score_of(path)
    assert caught.value.code == "R306"


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert found["times"]["started"] and found["times"]["ended"]
    return {key: value for key, value in found.items() if key != "times"}


def test_the_record_of_a_run_is_equal_when_it_is_repeated_or_resumed(project: Path) -> None:
    first, _ = run(project)
    (project / "first").mkdir()
    done = record(first.run_dir)
    assert done["state"] == "finished" and (done["step"], done["epoch"]) == (24, 4)
    assert done["weights"]["value"] == done["best"]["value"] and done["weights"]["step"] == done["best"]["step"]
    again, _ = run(project, resume=True)
    assert record(again.run_dir) == done
    other, _ = run(project)
    repeated = record(other.run_dir)
    assert repeated.pop("weights") == {**done.pop("weights"), "run": "toy-2"} and repeated == done
    config = json.loads((other.run_dir / "config.json").read_text())
    assert config["values"]["train.epochs"] == {"value": 4, "origin": f"{project / 'dslc.yaml'}:5:17"}


def test_the_record_tells_how_a_run_ended(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(project / "dslc.yaml")
    session = FakeSession(3)
    session.poison = {7: "loss"}
    with pytest.raises(NumericError):
        train(config, session, project / "build", console=io.StringIO())
    found = run_in(project / "runs" / "toy")
    assert found.state == "nan" and found.values["error"].startswith("R501") and found.values["epoch"] == 1

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(FakeSession, "evaluate_rows", broken)
    with pytest.raises(OSError, match="no such disk"):
        train(load_config(project / "dslc.yaml", {"train.seed": 1}), FakeSession(1), None, console=io.StringIO())
    assert run_in(project / "runs" / "toy-2").state == "failed"


POINTS = [
    f"{kind}.{point}:1:kill"
    for kind in ("previous", "weights", "publish")
    for point in ("create", "write", "fsync", "rename", "renamed", "dirsync", "sweep")
]


@pytest.mark.slow
def test_a_publication_killed_anywhere_is_whole(project: Path, fuzz_seed: int) -> None:
    """Old or new weights, each with its score; the old ones are never lost; resuming completes the publication."""
    chosen = np.random.default_rng(fuzz_seed).permutation(POINTS)[:10] if not os.environ.get("DSLC_SOAK") else POINTS
    run(project, train__epochs=1)
    old = published(project).read_bytes()
    fake = SUPPORT / "training" / "fake_session.py"
    whole, _ = run(project, publish=False, save__dir=str(project / "runs" / "whole"))
    assert whole.weights is not None
    for number, fault in enumerate(chosen):
        published(project).write_bytes(old)
        (project / "dslc.yaml").write_text(
            (project / "dslc.yaml")
            .read_text()
            .replace("runs/toy", f"runs/n{number}")
            .replace(f"n{number - 1},", f"n{number},")
        )
        log = project / "fired"
        log.unlink(missing_ok=True)
        env = {**os.environ, "DSLC_FAILPOINT": str(fault), "DSLC_FAILPOINT_LOG": str(log)}
        done = subprocess.run([sys.executable, str(fake), str(project)], env=env, capture_output=True, timeout=60)
        assert done.returncode == -signal.SIGKILL, (fault, done.stdout, done.stderr)
        assert log.read_text() == str(fault).replace(":", " ") + "\n"
        now = published(project).read_bytes()
        previous = project / "build" / "toy.previous.safetensors"
        score = score_of(published(project))
        assert tensorfile.read(published(project)).verified and score is not None
        assert (score.run == "toy") == (now == old)
        assert now == old or previous.read_bytes() == old, fault
        again = subprocess.run([sys.executable, str(fake), str(project), "--resume"], capture_output=True, timeout=60)
        assert again.returncode == 0, (fault, again.stderr)
        tensors = tensorfile.read(published(project)).tensors
        expected = tensorfile.read(whole.weights).tensors
        assert all(tensors[n].raw.tobytes() == expected[n].raw.tobytes() for n in expected), fault
        assert previous.read_bytes() == old and run_in(project / "runs" / f"n{number}").state == "finished"


def test_a_planted_fault_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a rule that finds everything better loses the good weights."""
    monkeypatch.setattr(Score, "worse_because", lambda self, there: None)
    run(project)
    good = published(project).read_bytes()
    run(project, train__epochs=1)
    assert published(project).read_bytes() != good


def test_a_run_without_weights_says_how_to_complete_it(project: Path) -> None:
    from dslc.runtime.history.publication import publish_run

    folder = project / "runs" / "toy"
    (folder / "checkpoints").mkdir(parents=True)
    with pytest.raises(DslcError) as caught:
        publish_run(run_in(folder), published(project), project, pytest.fail)
    assert caught.value.code == "R304" and "dslc train --resume toy" in (caught.value.help or "")
