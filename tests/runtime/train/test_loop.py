"""The training loop against a small numpy model: what it feeds, logs, saves, publishes, and how it goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.fake_session import FakeSession

from dslc.base.errors import ArtifactError, BuildError, DataError, InputError, NumericError, ResourceError
from dslc.runtime.config.load import load_config
from dslc.runtime.train.checkpoint import CheckpointStore, read_checkpoint
from dslc.runtime.train.data import shuffled
from dslc.runtime.train.loop import TrainResult, evaluate, train
from dslc.runtime.train.metrics import read_log
from dslc.runtime.train.resume import plan_before_build
from dslc.runtime.train.setup import plan_run
from dslc.runtime.weights import safetensors_file as tensorfile

BATCHES = 6  # 50 rows, batches of 8


def run(
    folder: Path, *, resume: bool | str = False, session: FakeSession | None = None, out: str = "build", **flags: Any
) -> tuple[TrainResult, FakeSession, str]:
    config = load_config(folder / "dslc.yaml", {key.replace("__", "."): value for key, value in flags.items()})
    session = session or FakeSession(config.train.seed)
    console = io.StringIO()
    return train(config, session, folder / out, resume, console), session, console.getvalue()


def test_a_whole_run(project: Path) -> None:
    result, session, text = run(project)
    assert result.exit_code == 0 and result.steps == len(session.rates) == 4 * BATCHES
    assert result.weights == project / "runs" / "toy" / "weights.safetensors"
    assert result.published == project / "build" / "toy.safetensors"
    assert result.published.read_bytes() == result.weights.read_bytes()
    published = tensorfile.read(result.weights)
    assert set(published.tensors) == {"w", "b"} and published.verified
    assert all(np.array_equal(published.tensors[n].array(), session.state[n]) for n in ("w", "b"))
    lines = text.splitlines()
    starts = [line.split("  ")[0] for line in lines[:-1] if line.startswith("epoch")]
    assert starts == [f"epoch {n}/4" for n in (1, 2, 3, 4)]
    assert "eval: loss" in lines[0] and "samples/s" in lines[1] and max(map(len, lines[:-1])) < 80
    assert "\x1b" not in text
    assert result.metrics["accuracy"] == session.evaluate(**_eval_data(project)).metrics["accuracy"]


def _eval_data(folder: Path) -> dict[str, Any]:
    with np.load(folder / "toy.npz", allow_pickle=False) as data:
        return {"x": data["tx"], "label": data["ty"].astype("i4")}


def test_each_epoch_takes_each_row_once_in_the_order_of_seed_and_epoch(project: Path) -> None:
    _, session, _ = run(project)
    with np.load(project / "toy.npz", allow_pickle=False) as data:
        x = data["x"]
    for epoch in range(4):
        seen = np.concatenate(session.seen[epoch * BATCHES : (epoch + 1) * BATCHES])
        assert np.array_equal(seen, x[shuffled(3, epoch, 50)[: BATCHES * 8]])
    _, plain, _ = run(project, session=FakeSession(3), data__shuffle=False)
    assert np.array_equal(np.concatenate(plain.seen[:BATCHES]), x[: BATCHES * 8])


def test_schedules_reach_the_step_and_evaluation_uses_base_values(project: Path) -> None:
    _, session, _ = run(project, train__base_lr=0.2)
    total = 4 * BATCHES
    for step in range(total):
        done = (step - BATCHES) / (total - BATCHES)
        factor = (step + 1) / BATCHES if step < BATCHES else 0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * done))
        assert session.rates[step] == pytest.approx(0.2 * factor, rel=1e-14)
        assert session.betas[step] == pytest.approx(1 - 0.5 * step / total, rel=1e-14)
    assert all(call == {"beta": 1.0, "rows": 21} for call in session.evals)


def test_the_log_has_one_line_an_epoch_and_every_n_steps(project: Path) -> None:
    run(project, train__log_every="5 steps")
    entries = list(read_log(project / "runs" / "toy" / "log.jsonl"))
    assert [e["step"] for e in entries if e["kind"] == "step"] == [5, 10, 15, 20]
    epochs = [e for e in entries if e["kind"] == "epoch"]
    assert [(e["step"], e["epoch"]) for e in epochs] == [(6, 1), (12, 2), (18, 3), (24, 4)]
    assert all({"loss", "accuracy", "samples_per_s", "seconds"} <= set(e) for e in epochs)
    assert [e["step"] for e in entries if e["kind"] == "eval"] == [6, 12, 18, 24]
    step = next(e for e in entries if e["kind"] == "step")
    assert set(step) == {"kind", "step", "epoch", "loss", "accuracy", "lr"}


def test_an_epoch_line_holds_the_means_of_its_own_steps(project: Path) -> None:
    run(project, train__log_every="1 step")
    entries = list(read_log(project / "runs" / "toy" / "log.jsonl"))
    losses = [e["loss"] for e in entries if e["kind"] == "step"]
    epochs = [e["loss"] for e in entries if e["kind"] == "epoch"]
    assert epochs == pytest.approx([np.mean(losses[k : k + BATCHES]) for k in range(0, 24, BATCHES)], rel=1e-12)


def test_the_last_step_is_evaluated_and_saved_whatever_the_intervals(project: Path) -> None:
    run(project, save__every="7 steps", train__eval_every="5 steps", save__best="null")
    entries = list(read_log(project / "runs" / "toy" / "log.jsonl"))
    assert [e["step"] for e in entries if e["kind"] == "eval"] == [5, 10, 15, 20, 24]
    assert CheckpointStore(project / "runs" / "toy", 2).steps() == [24, 21]


def test_newest_two_and_the_best_are_kept(project: Path) -> None:
    run(project)
    store = CheckpointStore(project / "runs" / "toy", 2)
    newest = read_checkpoint(store.path(24)).position
    assert newest.best_step is not None
    kept = set(store.steps())
    assert {24, newest.best_step} <= kept and len(kept) <= 3
    best = max((e["accuracy"], -e["step"]) for e in read_log(project / "runs/toy/log.jsonl") if e["kind"] == "eval")
    assert newest.best_step == -best[1] and float.fromhex(newest.best_value or "") == best[0]


def test_the_best_weights_are_published_and_the_last_without_best(project: Path) -> None:
    result, session, text = run(project, save__best="lowest accuracy")
    store = CheckpointStore(result.run_dir, 2)
    best = read_checkpoint(store.path(read_checkpoint(store.path(24)).position.best_step or 0))
    assert best.position.step != 24, "the case says nothing when the last is the best"
    assert np.array_equal(session.state["w"], best.tensors["w"])
    assert "best (lowest accuracy)" in text
    result, session, text = run(
        project, session=FakeSession(3), save__best="null", save__dir=str(project / "other"), out="o"
    )
    last = read_checkpoint(CheckpointStore(result.run_dir, 2).path(24))
    assert np.array_equal(session.state["w"], last.tensors["w"]) and "the last weights" in text


def test_best_without_evaluation_data_goes_by_the_epoch_means(project: Path) -> None:
    text = (project / "dslc.yaml").read_text()
    (project / "dslc.yaml").write_text("\n".join(line for line in text.splitlines() if "eval:" not in line))
    result, _, _ = run(project, save__best="loss")
    epochs = [e for e in read_log(result.run_dir / "log.jsonl") if e["kind"] == "epoch"]
    position = read_checkpoint(CheckpointStore(result.run_dir, 2).path(24)).position
    assert position.best_step == min(epochs, key=lambda e: e["loss"])["step"]


class Stopped(Exception):
    pass


def stop_after(step: int) -> FakeSession:
    session = FakeSession(3)

    def stop(done: int) -> None:
        if done == step:
            raise Stopped

    session.after_step = stop
    return session


def values(folder: Path) -> list[dict[str, Any]]:
    timed = ("samples_per_s", "seconds")
    return [{k: v for k, v in e.items() if k not in timed} for e in read_log(folder / "log.jsonl")]


@pytest.mark.parametrize("at", [4, 5, 7, 11, 12, 17, 22, 23])
def test_a_resumed_run_equals_the_unbroken_one(project: Path, at: int) -> None:
    whole, unbroken, _ = run(project, out="a", save__dir=str(project / "a"), train__log_every="1 step")
    with pytest.raises(Stopped):
        run(project, session=stop_after(at), save__dir=str(project / "b"), train__log_every="1 step")
    # A session of other weights: all that counts comes from the checkpoint.
    other = FakeSession(3)
    other.state["w"] += 1
    resumed, session, text = run(
        project, resume=True, session=other, out="b", save__dir=str(project / "b"), train__log_every="1 step"
    )
    assert resumed.run_dir == project / "b" and resumed.metrics == whole.metrics
    assert "resuming from" in text
    a, b = (tensorfile.read(r.weights).tensors for r in (whole, resumed) if r.weights)
    assert all(a[name].raw.tobytes() == b[name].raw.tobytes() for name in a)
    assert values(project / "a") == values(project / "b")
    assert list(map(list, values(project / "a"))) == list(map(list, values(project / "b"))), "another order of metrics"
    first, second = (read_checkpoint(CheckpointStore(project / n, 2).path(24)) for n in "ab")
    assert all(np.array_equal(first.tensors[n], second.tensors[n]) for n in first.tensors)
    assert first.position == second.position
    assert unbroken.step == session.step or session.step == first.position.best_step


def test_a_session_of_another_seed_or_with_steps_is_refused(project: Path) -> None:
    stepped = FakeSession(3)
    stepped.step = 1
    for session in (FakeSession(99), stepped):
        with pytest.raises(InputError) as caught:
            run(project, session=session)
        assert caught.value.code == "R105"


def test_resume_of_a_finished_run_publishes_again(project: Path) -> None:
    first, _, _ = run(project)
    assert first.weights is not None
    assert first.published is not None
    before = first.weights.read_bytes()
    first.weights.unlink()
    first.published.unlink()
    again, session, _ = run(project, resume=True)
    assert again.exit_code == 0 and again.weights is not None and again.weights.read_bytes() == before
    assert again.published is not None and again.published.read_bytes() == before
    assert session.rates == [] and again.metrics == first.metrics


def test_a_second_run_takes_a_new_folder_and_resume_the_newest(project: Path) -> None:
    first, _, _ = run(project)
    before = {p.name: p.read_bytes() for p in (first.run_dir / "checkpoints").iterdir()}
    second, _, text = run(project)
    assert second.run_dir == project / "runs" / "toy-2" and "holds an earlier run" in text
    assert {p.name: p.read_bytes() for p in (first.run_dir / "checkpoints").iterdir()} == before
    third, _, text = run(project, resume=True)
    assert third.run_dir == second.run_dir and "holds an earlier run" not in text


def test_resume_without_a_run(project: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        run(project, resume=True)
    assert caught.value.code == "R307" and "without --resume" in (caught.value.help or "")


def test_resume_starts_a_run_again_that_ended_before_its_first_checkpoint(project: Path) -> None:
    _, unbroken, _ = run(project, save__dir=str(project / "other"))
    with pytest.raises(Stopped):
        run(project, session=stop_after(1))
    assert not CheckpointStore(project / "runs" / "toy", 2).steps()
    result, session, text = run(project, resume=True)
    assert "run toy ended before its first checkpoint: it starts again" in text
    assert result.exit_code == 0 and result.run_dir == project / "runs" / "toy"
    assert session.rates == unbroken.rates
    assert all(np.array_equal(session.state[n], unbroken.state[n]) for n in ("w", "b"))
    _, session, text = run(project, resume=True)  # now it has checkpoints
    assert session.rates == [] and "starts again" not in text


@pytest.mark.parametrize("left", ["the folder", "the lock", "all but the record"])
def test_resume_starts_a_run_again_that_was_killed_before_its_record(project: Path, left: str) -> None:
    """The folder is made first, then its lock, the log, the configuration, the record."""
    _, unbroken, _ = run(project, save__dir=str(project / "other"))
    folder = project / "runs" / "toy"
    if left == "all but the record":
        with pytest.raises(Stopped):
            run(project, session=stop_after(1))
        (folder / "run.json").unlink()
    else:
        folder.mkdir(parents=True)
        if left == "the lock":
            (folder / ".dslc-run").touch()
    result, session, text = run(project, resume=True)
    assert "run toy ended before its first checkpoint: it starts again" in text
    assert result.exit_code == 0 and result.run_dir == folder and session.rates == unbroken.rates


def test_resume_starts_no_run_again_with_another_configuration(project: Path) -> None:
    """Its bits would be others. A change that leaves them is none, and `allow_changes` and a start without resume are
    ways out."""
    with pytest.raises(Stopped):
        run(project, session=stop_after(1), train__lr=0.5)
    with pytest.raises(ArtifactError) as caught:
        run(project, resume=True, start__weights="other.safetensors")
    assert caught.value.code == "R307" and caught.value.message.startswith(
        "the configuration changed since run toy began, which has no checkpoint: start.weights was None and is now"
    )
    assert ", train.lr was 0.5 and is now" in caught.value.message
    _, _, text = run(project, resume=True, train__lr=0.5, data__workers=1, train__epochs=5)
    assert "train.epochs was 4 and is now 5" in text and "it starts again" in text


def test_resume_takes_the_newest_run_also_if_an_older_one_has_checkpoints(project: Path) -> None:
    first, _, _ = run(project)
    with pytest.raises(Stopped):
        run(project, session=stop_after(1))
    result, _, text = run(project, resume=True)
    assert result.run_dir == project / "runs" / "toy-2" and "run toy-2 ended before its first checkpoint" in text
    named, session, text = run(project, resume="toy")
    assert named.run_dir == first.run_dir and session.rates == [] and "starts again" not in text


def test_resume_falls_back_to_an_older_checkpoint_that_verifies(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    store = CheckpointStore(project / "runs" / "toy", 2)
    newest = store.path(store.steps()[0])
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1
    newest.write_bytes(data)
    result, session, text = run(project, resume=True)
    assert "warning: skipped a checkpoint" in text and newest.name in text
    assert f"{store.path(6)}" in text or f"{store.path(4)}" in text
    assert result.exit_code == 0 and session.seen


def test_resume_with_every_checkpoint_damaged(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    for path in (project / "runs/toy/checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError) as caught:
        run(project, resume=True)
    assert caught.value.code == "R307" and caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("flags", "session", "says"),
    [
        ({"train__seed": 4}, FakeSession(4), "train.seed was 3 and is now 4"),
        ({}, FakeSession(3, batch=4), "the batch size was 8 and is now 4"),
        ({}, FakeSession(3, digest="j" * 64), "another interface"),
    ],
)
def test_resume_refuses_what_would_change_the_order(
    project: Path, flags: dict[str, Any], session: FakeSession, says: str
) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    with pytest.raises(ArtifactError) as caught:
        run(project, resume=True, session=session, **flags)
    assert caught.value.code == "R307" and says in caught.value.message


def test_a_resumed_run_may_be_longer_and_says_so(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    result, _, text = run(project, resume=True, train__epochs=5)
    assert "the configuration changed since the checkpoint: train.epochs was 4 and is now 5" in text
    assert result.steps == 5 * BATCHES


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"train.base_lr": 0.01}, "train.base_lr was None and is now 0.01"),
        ({"train.epochs": 5, "data.shuffle": False}, "data.shuffle was True and is now False, train.epochs was 4"),
        ({"args.width": 3}, "args.width was None and is now 3"),
        ({"build.precision": "f64"}, "build.precision was None and is now f64"),
        ({"model": "other.nn"}, "model was toy.nn and is now other.nn"),
    ],
)
def test_other_values_are_refused_on_resume_unless_told(project: Path, flags: dict[str, Any], says: str) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    config = load_config(project / "dslc.yaml", {"save.dir": str(project / "runs" / "toy"), **flags})
    before = (project / "runs" / "toy" / "log.jsonl").read_bytes()
    with pytest.raises(ArtifactError) as caught:
        train(config, FakeSession(3), project / "build", True, io.StringIO())
    assert caught.value.code == "R307" and says in caught.value.message
    assert "--allow-changes" in (caught.value.help or "")
    assert (project / "runs" / "toy" / "log.jsonl").read_bytes() == before
    told = io.StringIO()
    done = train(config, FakeSession(3), project / "build", True, told, allow_changes=True)
    assert done.exit_code == 0 and f"warning: the configuration changed since the checkpoint: {says}" in told.getvalue()


def test_resume_continues_the_run_that_is_named(project: Path) -> None:
    for _ in range(2):
        with pytest.raises(Stopped):
            run(project, session=stop_after(9))
    console = io.StringIO()
    config = load_config(project / "dslc.yaml")
    done = train(config, FakeSession(3), None, "toy", console)
    assert done.run_dir == project / "runs" / "toy" and "run toy: resuming from" in console.getvalue()
    assert max(CheckpointStore(project / "runs" / "toy-2", 2).steps()) < 24, "the other one is as it was"
    with pytest.raises(ArtifactError) as caught:
        train(config, FakeSession(3), None, "toy-3", console)
    assert caught.value.code == "R307" and "toy, toy-2" in (caught.value.help or "")


def test_a_run_is_not_resumed_to_fewer_steps_than_it_has_done(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    before = (project / "runs" / "toy" / "log.jsonl").read_bytes()
    config = load_config(project / "dslc.yaml", flags={"train.epochs": 1})
    with pytest.raises(ArtifactError) as caught:
        train(config, FakeSession(3), None, True, io.StringIO())
    total = plan_run(config, FakeSession(3), print).total
    assert caught.value.code == "R307" and f"has done 8 steps, and 1 epochs are {total}" in caught.value.message
    with pytest.raises(ArtifactError) as early:
        plan_before_build(config, FakeSession(3), print, resume=True, replay=False)
    assert early.value.message == caught.value.message
    assert (project / "runs" / "toy" / "log.jsonl").read_bytes() == before


def test_resume_with_another_optimizer(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    other = FakeSession(3)
    other.state["w.second"] = np.zeros(3, "f4")
    with pytest.raises(ArtifactError) as caught:
        run(project, resume=True, session=other)
    assert caught.value.code == "R307" and "optimizer" in caught.value.message


@pytest.mark.parametrize(("what", "says"), [("w", "the gradient of `w`"), ("loss", "the loss")])
def test_a_nan_stops_with_step_and_parameter(project: Path, what: str, says: str) -> None:
    session = FakeSession(3)
    session.poison[9] = what
    with pytest.raises(NumericError) as caught:
        run(project, session=session)
    error = caught.value
    assert error.code == "R501" and error.exit_code == 7
    assert f"{says} is not finite in step 9" in error.message and "step-0000000008" in error.help
    assert CheckpointStore(project / "runs" / "toy", 2).steps()[0] == 8
    entry = [e for e in read_log(project / "runs/toy/log.jsonl") if e["kind"] == "nonfinite"]
    assert len(entry) == 1 and entry[0]["of"] == what


def test_skip_goes_on_past_so_many_and_no_more(project: Path) -> None:
    session = FakeSession(3)
    session.poison = {2: "w", 9: "loss"}
    result, _, text = run(project, session=session, train__on_nan="skip 2")
    assert result.exit_code == 0 and "(2 of 2 such steps)" in text
    epochs = [e for e in read_log(result.run_dir / "log.jsonl") if e["kind"] == "epoch"]
    assert all(isinstance(e["loss"], float) for e in epochs), "a NaN stays out of the means"
    session = FakeSession(3)
    session.poison = {2: "w", 9: "loss", 11: "w"}
    with pytest.raises(NumericError):
        run(project, session=session, train__on_nan="skip 2")


def test_the_skipped_steps_are_counted_over_a_resume(project: Path) -> None:
    session = stop_after(9)
    session.poison = {2: "w"}
    with pytest.raises(Stopped):
        run(project, session=session, train__on_nan="skip 1")
    session = FakeSession(3)
    session.poison = {10: "w"}
    with pytest.raises(NumericError):
        run(project, session=session, resume=True, train__on_nan="skip 1")


def test_a_state_that_is_not_finite_is_never_saved(project: Path) -> None:
    session = FakeSession(3)
    session.poison[6] = "state"
    with pytest.raises(NumericError) as caught:
        run(project, session=session)
    assert "after 7 steps" in caught.value.message or "step 7" in caught.value.message
    for step in CheckpointStore(project / "runs" / "toy", 2).steps():
        assert step <= 6
    session = FakeSession(3)
    session.poison[6] = "state"
    _, _, text = run(
        project, session=session, train__on_nan="skip 100", save__dir=str(project / "n"), save__best="null"
    )
    assert "so no checkpoint was written" in text
    assert all(step <= 6 for step in CheckpointStore(project / "n", 2).steps())


def test_disk_full_warns_and_the_third_failure_stops(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(*_: object, **__: object) -> None:
        calls.append(1)
        raise ResourceError("R402", "not written: No space left on device", place="x", help="free some space")

    monkeypatch.setattr("dslc.runtime.train.checkpoint.publish_bytes", full)
    with pytest.raises(ResourceError) as caught:
        run(project, save__best="null")
    assert caught.value.code == "R402" and caught.value.exit_code == 6 and len(calls) == 3
    assert "after 12 steps" in caught.value.message


def test_a_fault_that_passes_resets_the_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.base.publish import publish_bytes

    calls = []

    def sometimes(path: Path, *rest: Any, **more: Any) -> None:
        calls.append(path)
        if len(calls) in (1, 2, 4, 5):
            raise ResourceError("R402", "not written", place="x", help="free some space")
        publish_bytes(path, *rest, **more)

    monkeypatch.setattr("dslc.runtime.train.checkpoint.publish_bytes", sometimes)
    result, _, text = run(project, save__best="null")
    assert result.exit_code == 0 and text.count("in a row failed") == 4


def test_what_does_not_fit_is_refused_before_a_step(project: Path) -> None:
    for flags, code, says in (
        ({"train.schedules.gamma": 1.0}, "R104", "no float argument `gamma`"),
        ({"save.best": "acuracy"}, "R104", "no metric `acuracy`"),
        ({"data.train.img": "toy.npz:x"}, "R102", "no input `img`"),
    ):
        session = FakeSession(3)
        with pytest.raises(DataError) as caught:
            train(load_config(project / "dslc.yaml", flags), session, project / "build", console=io.StringIO())
        assert caught.value.code == code and says in caught.value.message and caught.value.help
        assert session.step == 0 and not (project / "runs").exists()
    with pytest.raises(DataError) as caught:
        run(project, session=FakeSession(3, batch=64))
    assert caught.value.code == "R106" and "--size B=50" in (caught.value.help or "")
    lean = FakeSession(3)
    lean.interface = type(lean.interface)("toy", "Toy", lean.interface.dims, lean.interface.inputs, (), None)
    with pytest.raises(BuildError) as refused:
        run(project, session=lean)
    assert refused.value.code == "E0605"


def test_evaluate(project: Path) -> None:
    session = FakeSession(3)
    found = evaluate(load_config(project / "dslc.yaml"), session, io.StringIO())
    assert found == session.evaluate(**_eval_data(project)) and found.rows == 21


def test_a_log_that_cannot_be_written_does_not_stop_the_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(name: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dslc.runtime.train.metrics.fail", full)
    result, _, text = run(project)
    assert result.exit_code == 0 and text.count("cannot be written") == 1


def test_a_torn_last_line_of_the_log_is_dropped_on_resume(project: Path) -> None:
    with pytest.raises(Stopped):
        run(project, session=stop_after(9))
    path = project / "runs/toy/log.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "epo')
    run(project, resume=True)
    assert all(json.loads(line) for line in path.read_text().splitlines())
