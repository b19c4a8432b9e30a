"""What a run does besides training steps: early stop, curves, events, a split, a file to start from."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from training.fake_session import FakeSession

from dslc.base.errors import ArtifactError, DataError, EnvironmentFault, NumericError, WeightsMissing
from dslc.base.publish import publish_bytes
from dslc.runtime.config.load import load_config
from dslc.runtime.config.policies import Best, EarlyStop
from dslc.runtime.train.checkpoint import CheckpointStore, Position, read_checkpoint
from dslc.runtime.train.diagnose import find_nan, overfit_one_batch
from dslc.runtime.train.loop import TrainResult, evaluate, train
from dslc.runtime.train.metrics import read_log
from dslc.runtime.train.plot import curves, svg, terminal
from dslc.runtime.train.stopping import Patience
from dslc.runtime.weights import safetensors_file as tensorfile

BATCHES = 6


def configured(folder: Path, **flags: Any) -> Any:
    return load_config(folder / "dslc.yaml", {key.replace("__", "."): value for key, value in flags.items()})


def run(
    folder: Path, *, resume: bool = False, session: FakeSession | None = None, **flags: Any
) -> tuple[TrainResult, FakeSession, str]:
    config = configured(folder, **flags)
    session = session or FakeSession(config.train.seed)
    console = io.StringIO()
    return train(config, session, folder / "build", resume, console), session, console.getvalue()


# Early stop


def test_patience_counts_evaluations_without_progress() -> None:
    patience = Patience(EarlyStop(Best("loss", highest=False), 2, 0.1))
    for value, stale in ((1.0, 0), (0.95, 1), (0.8, 0), (float("nan"), 1), (0.75, 2)):
        assert not patience.used_up
        patience.see({"loss": value})
        assert patience.stale == stale
    assert patience.used_up and "0.8 for 2 evaluations" in patience.why
    patience.see({"accuracy": 1.0})  # an evaluation without the metric is one without progress
    assert patience.stale == 3
    fresh = Patience(None)
    for _ in range(100):
        fresh.see({"loss": 1.0})
    assert not fresh.used_up


STOP = {"metric": "lowest loss", "patience": 2, "change": 1e9}  # nothing after the first is progress


def test_a_run_stops_early_saves_and_publishes(project: Path) -> None:
    result, session, text = run(project, train__stop=STOP, save__best="null", train__epochs=50)
    assert result.exit_code == 0 and result.steps == 3 * BATCHES == len(session.rates)
    assert result.weights is not None and result.weights.exists()
    assert CheckpointStore(project / "runs/toy", 2).steps()[0] == 3 * BATCHES
    assert f"stopped after 18 of {50 * BATCHES} steps: lowest loss has not improved" in text


def test_a_stopped_run_that_is_resumed_stays_stopped_and_one_before_stops_at_the_same_step(project: Path) -> None:
    result, _, _ = run(project, train__stop=STOP, save__best="null", train__epochs=50)
    again, session, _ = run(project, resume=True, train__stop=STOP, save__best="null", train__epochs=50)
    assert again.steps == result.steps and session.rates == []
    store = CheckpointStore(project / "runs/toy", 2)
    store.path(store.steps()[0]).unlink()
    before = read_checkpoint(store.path(store.steps()[0])).position
    assert before.step == 16 and before.stop_stale == 1 and before.stop_value is not None
    again, session, _ = run(project, resume=True, train__stop=STOP, save__best="null", train__epochs=50)
    assert again.steps == result.steps and len(session.rates) == 2


def test_without_evaluation_the_epochs_means_count(project: Path) -> None:
    (project / "dslc.yaml").write_text(re.sub(r"  eval:.*\n", "", (project / "dslc.yaml").read_text()))
    result, _, _ = run(project, train__stop=STOP, save__best="null", train__epochs=50)
    assert result.steps == 3 * BATCHES


def test_a_position_of_before_early_stopping_is_read(project: Path) -> None:
    run(project)
    store = CheckpointStore(project / "runs/toy", 2)
    data = json.loads(read_checkpoint(store.path(24)).position.encode())
    del data["stop_value"], data["stop_stale"]
    assert Position.decode(json.dumps(data)).stop_stale == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5", "is a mapping"), ("{metric: loss}", "needs `metric` and `patience`"), ("{patience: 3}", "needs `metric`"),
        ("{metric: loss, patience: 0}", "out of range"), ("{metric: loss, patience: 1, wait: 2}", "unknown key `wait`"),
        ("{metric: lowest, patience: [1]}", "is an integer"), ("{metric: loss, patience: 1, change: -1}", "range"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused(project: Path, text: str, says: str) -> None:
    (project / "dslc.yaml").write_text(f"model: m.nn\ntrain: {{stop: {text}}}\n")
    with pytest.raises(DataError) as caught:
        load_config(project / "dslc.yaml")
    assert caught.value.code == "R104" and says in caught.value.message


def test_an_unknown_metric_is_refused_before_a_step(project: Path) -> None:
    with pytest.raises(DataError) as caught:
        run(project, train__stop={"metric": "acuracy", "patience": 1})
    assert caught.value.place == "train.stop.metric" and caught.value.help == "did you mean `accuracy`?"


# Curves and events


def test_each_epoch_draws_the_curves(project: Path) -> None:
    session = FakeSession(3)
    drawn: list[str] = []
    picture = project / "runs/toy/plot.svg"
    session.after_step = lambda step: drawn.append(picture.read_text() if picture.exists() else "")
    run(project, session=session)
    assert drawn[BATCHES - 1] == "" and drawn[BATCHES] != drawn[2 * BATCHES] != drawn[3 * BATCHES]
    text = picture.read_text()
    ElementTree.fromstring(text)
    assert text.count("<polyline") == 4 and ">loss<" in text and ">accuracy<" in text
    found = curves(project / "runs/toy/log.jsonl")
    epochs = [e for e in read_log(project / "runs/toy/log.jsonl") if e["kind"] == "epoch"]
    assert found["loss"]["train"] == [(e["step"], e["loss"]) for e in epochs]
    assert list(found) == ["loss", "accuracy"] and len(found["accuracy"]["eval"]) == 4


def test_no_picture_when_none_is_wanted(project: Path) -> None:
    run(project, save__plot=False)
    assert not (project / "runs/toy/plot.svg").exists()


def test_a_picture_that_cannot_be_written_is_told_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Any, *rest: Any, **more: Any) -> None:
        if Path(path).name == "plot.svg":
            raise OSError(28, "No space left on device")
        publish_bytes(path, *rest, **more)

    monkeypatch.setattr("dslc.runtime.train.plot.publish_bytes", full)
    result, _, text = run(project)
    assert result.exit_code == 0 and text.count("plot.svg cannot be written") == 1


def test_a_picture_of_anything_is_well_formed() -> None:
    for values in ([0.0], [1.0, 1.0], [1e308, -1e308], [0.0, 0.0, 0.0], [5e-324, 0.0], list(range(5000))):
        found = {"a<b>&": {"train": [(float(n), float(v)) for n, v in enumerate(values)]}}
        text = svg(found)
        assert ElementTree.fromstring(text).get("aria-label", "").endswith(", by step")
        assert "nan" not in text and "inf" not in text
        ElementTree.fromstring(text)
        assert all(len(line) < 100 for line in terminal(found).splitlines())
    ElementTree.fromstring(svg({}))
    assert terminal({}) == ""


def test_the_terminals_curve_falls_with_the_loss() -> None:
    line = terminal({"loss": {"train": [(1.0, 8.0), (2.0, 4.0), (3.0, 0.0)]}})
    assert re.search(r"loss train +8 █▅▁ 0$", line), line


def test_events_for_tensorboard(project: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    run(project, save__tensorboard=True)
    [file] = (project / "runs/toy/events").iterdir()
    data = file.read_bytes()
    assert all(tag in data for tag in (b"epoch/loss", b"eval/accuracy", b"epoch/samples_per_s"))


class BrokenWriter:
    """Fails from a given call on, as tensorboardX does when the disk is full."""

    def __init__(self, folder: str, purge_step: int | None = None, *, after: int = 3) -> None:
        self.left, self.closed = after, 0

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("no space left on device")

    def close(self) -> None:
        self.closed += 1
        if self.left < 0:
            raise RuntimeError("the writer's thread is gone")


def test_events_that_fail_are_told_once_and_change_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _, _ = run(project, save__dir=str(project / "runs/plain"))
    module = SimpleNamespace(SummaryWriter=BrokenWriter)
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", module)
    result, _, text = run(project, save__tensorboard=True)
    assert result.exit_code == 0 and text.count("TensorBoard gets no more of this run: OSError: no space") == 1
    assert expected.weights is not None and result.weights is not None and result.metrics == expected.metrics

    def refused(*args: object, **kwargs: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", SimpleNamespace(SummaryWriter=refused))
    result, _, text = run(project, save__tensorboard=True)
    assert result.exit_code == 0 and text.count("TensorBoard gets no more of this run: PermissionError: not here") == 1


def test_events_are_closed_when_a_run_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[BrokenWriter] = []

    def writer(folder: str, purge_step: int | None = None) -> BrokenWriter:
        made.append(BrokenWriter(folder, after=10**6))
        return made[-1]

    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", SimpleNamespace(SummaryWriter=writer))

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(FakeSession, "evaluate_rows", broken)
    with pytest.raises(OSError, match="no such disk"):
        run(project, save__tensorboard=True)
    assert [each.closed for each in made] == [1]


def test_events_without_the_package(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(EnvironmentFault) as caught:
        run(project, save__tensorboard=True)
    assert caught.value.code == "R205" and "dslc[logs]" in (caught.value.help or "")


# Data


def test_a_split_is_trained_on_and_evaluated_apart(project: Path) -> None:
    (project / "dslc.yaml").write_text(re.sub(r"  eval:.*\n", "  split: 0.2\n", (project / "dslc.yaml").read_text()))
    _, session, _ = run(project)
    assert len(session.rates) == 4 * 5 and {call["rows"] for call in session.evals} == {10}
    with np.load(project / "toy.npz", allow_pickle=False) as data:
        x = data["x"]
    seen = {row.tobytes() for batch in session.seen for row in batch}
    assert len(seen) == 40 and seen < {row.tobytes() for row in x}
    found = evaluate(configured(project), session, io.StringIO())
    assert found.rows == 10 and found == session.evaluate(**_held(x, seen, project))
    with pytest.raises(DataError) as caught:
        run(project, **{"data.eval.x": "toy.npz:tx"})
    assert "exclude each other" in caught.value.message


def _held(x: np.ndarray, seen: set[bytes], project: Path) -> dict[str, Any]:
    rows = [number for number, row in enumerate(x) if row.tobytes() not in seen]
    with np.load(project / "toy.npz", allow_pickle=False) as data:
        return {"x": x[rows], "label": data["y"][rows].astype("i4")}


def test_normalized_data_reaches_training_and_evaluation(project: Path) -> None:
    augment = [{"normalize": {"mean": 1, "std": 2}}]
    _, session, _ = run(project, **{"data.augment.x": augment, "data.shuffle": False})
    with np.load(project / "toy.npz", allow_pickle=False) as data:
        assert np.array_equal(session.seen[0], (data["x"][:8] - np.float32(1)) / np.float32(2))


# Where a run starts


def write(path: Path, **tensors: np.ndarray) -> Path:
    publish_bytes(path, tensorfile.encode({name.replace("__", "."): array for name, array in tensors.items()}))
    return path


def test_starting_from_a_file(project: Path) -> None:
    w, b = np.full((4, 3), 0.5, "f4"), np.ones(3, "f4")
    session = FakeSession(3)
    before: list[np.ndarray] = []
    session.after_step = lambda step: before.append(session.state["w"].copy())
    file = write(project / "w.safetensors", w=w, b=b)
    _, _, text = run(project, session=session, start__weights=str(file))
    assert f"started from {file}: 2 of 2 tensors" in text
    assert np.abs(before[0] - w).max() < 0.1 < np.abs(before[0] - FakeSession(3).state["w"]).max()


def test_names_are_mapped_and_a_new_head_keeps_its_initial_values(project: Path) -> None:
    config = {
        "start.weights": str(
            write(project / "w.safetensors", net__w=np.full((4, 3), 2.0, "f2"), net__b=np.ones(7, "f4"))
        ),
        "start.map": {"net": "x", "net.w": "w", "net.b": "b"},
    }
    write(project / "w.safetensors", net__w=np.full((4, 3), 2.0, "f2"), net__b=np.ones(7, "f4"))
    with pytest.raises(ArtifactError) as caught:
        run(project, **{**config, "start.map": {"net.w": "w", "net.b": "b"}})
    assert caught.value.code == "R305" and "b is f32[7], not f32[3]" in caught.value.message
    with pytest.raises(ArtifactError) as caught:
        run(project, **config)
    assert "no tensor's name is or begins with `net`" in caught.value.message
    session = FakeSession(3)
    config["start.map"] = {"net.w": "w", "net.b": "b"}
    found = configured(project, **config, **{"start.partial": True})
    losses = overfit_one_batch(found, session, 2, io.StringIO())
    assert losses.steps == 2
    _, _, text = run(project, **config, **{"start.partial": True})
    assert "1 of 2 tensors" in text
    assert "is f32[7], not f32[3]: keeps its initial values" in text


@pytest.mark.parametrize(
    ("tensors", "names", "code", "says"),
    [
        ({"other": np.ones(3, "f4")}, {}, "R305", "missing: w (f32[4, 3]), b"),
        ({"w": np.ones((4, 3), "f4"), "b": np.ones(3, "f8")}, {}, "R305", "b is f64[3], not f32[3]"),
        ({"a": np.ones(3, "f4"), "b": np.ones(3, "f4")}, {"a": "b"}, "R305", "two tensors would be named `b`"),
        ({"w": np.ones((4, 3), "f4"), "b": np.ones(3, "f4"), "c": np.ones(1)}, {}, "R305", "extra: c"),
        (None, {}, "R304", "no such file"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(project: Path, tensors: Any, names: Any, code: str, says: str) -> None:
    if tensors is not None:
        write(project / "w.safetensors", **tensors)
    session = FakeSession(3)
    with pytest.raises(ArtifactError if code == "R305" else WeightsMissing) as caught:
        run(project, session=session, start__weights=str(project / "w.safetensors"), start__map=names)
    assert caught.value.code == code and says in caught.value.message and caught.value.help
    assert np.array_equal(session.state["w"], FakeSession(3).state["w"]) and session.step == 0
    assert not (project / "runs").exists(), "no folder is made, and none named, for a run that does not begin"


# Why does it not train?


def test_one_batch_is_learned_by_heart_and_nothing_is_written(project: Path) -> None:
    session = FakeSession(3)
    found = overfit_one_batch(configured(project, train__base_lr=0.3), session, 200, io.StringIO())
    assert found.learned == (found.last <= 0.1 * found.first) and found.last < found.first
    assert len({batch.tobytes() for batch in session.seen}) == 1 and len(session.seen) == 200
    assert set(session.rates) == {0.3} and set(session.betas) == {1.0}, "no schedule"
    assert not (project / "runs").exists() and not (project / "build").exists()


def test_one_batch_with_a_nan(project: Path) -> None:
    session = FakeSession(3)
    session.poison[4] = "loss"
    with pytest.raises(NumericError) as caught:
        overfit_one_batch(configured(project), session, 10, io.StringIO())
    assert caught.value.code == "R501" and "step 4" in caught.value.message


class Watched(FakeSession):
    """Says which step it was asked to look into, in which state."""

    def find_nonfinite(self, /, **inputs: Any) -> object:
        return self.step, self.state["w"].copy(), inputs


def test_find_nan_replays_from_the_newest_checkpoint_to_the_step(project: Path) -> None:
    session = FakeSession(3)
    session.poison[10] = "w"
    with pytest.raises(NumericError):
        run(project, session=session)
    log = (project / "runs/toy/log.jsonl").read_bytes()
    again = Watched(3)
    again.poison[10] = "w"
    found = find_nan(configured(project), again, io.StringIO())
    assert found is not None and (found.step, found.start) == (10, 8)
    step, weights, inputs = found.what  # type: ignore[misc]
    assert step == 10 and np.array_equal(inputs["x"], session.seen[10]) and inputs["lr"] == session.rates[10]
    undisturbed = FakeSession(3)
    states: list[np.ndarray] = []
    undisturbed.after_step = lambda number: states.append(undisturbed.state["w"].copy())
    run(project, session=undisturbed, save__dir=str(project / "other"))
    assert np.array_equal(weights, states[9])
    assert (project / "runs/toy/log.jsonl").read_bytes() == log, "the run's files are only read"


def test_find_nan_without_a_checkpoint_or_a_nan(project: Path) -> None:
    session = Watched(3)
    session.poison[2] = "loss"
    console = io.StringIO()
    found = find_nan(configured(project), session, console)
    assert found is not None and (found.step, found.start) == (2, 0) and "from its start" in console.getvalue()
    assert find_nan(configured(project), Watched(3), io.StringIO()) is None


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2500, 16_001, 50_000])
def test_a_long_curve_is_held_in_part_and_drawn_whole(tmp_path: Path, count: int) -> None:
    """At equal distances, from the first point to the last."""
    entries = "".join(f'{{"kind":"eval","step":{i},"loss":{i}.5}}\n' for i in range(count))
    (tmp_path / "log.jsonl").write_text(entries)
    steps = [step for step, value in curves(tmp_path / "log.jsonl")["loss"]["eval"] if value == step + 0.5]
    assert steps[0] == 0 and steps[-1] == count - 1 and min(count, 500) <= len(steps) <= 1001
    assert len({b - a for a, b in pairwise(steps[:-1])}) <= 1


def test_a_file_of_damaged_lines_is_no_log(tmp_path: Path) -> None:
    """Its reader stops: a file of empty lines took minutes. A few torn lines are left out."""
    good, path = '{"kind":"eval","step":1,"loss":1.0}\n', tmp_path / "log.jsonl"
    path.write_text(good + "\n[1]\n{\n" * 100 + good)
    assert len(list(read_log(path))) == 2
    path.write_text(good + "\n[1]\n{\n" * 1000 + good)
    assert len(list(read_log(path))) == 1
    names = ",".join(f'"m{i}":1.0' for i in range(1000))
    path.write_text(f'{{"kind":"eval","step":1,{names}}}\n')
    assert len(curves(path)) < 100
