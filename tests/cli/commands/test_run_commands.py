"""``train``, ``eval`` and ``predict`` on a small project."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from thinning import thinned

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2]) -> [B, 2] {
  return x |> linear(16) as fc |> relu |> linear(2) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""
CONFIG = """model: net.nn
build: {target: cpu, sizes: {train: {B: 8}}}
data:
  train: {x: data.npz:x, label: data.npz:y}
  eval:  {x: data.npz:x, label: data.npz:y}
train: {epochs: 4, seed: 1}
save:  {dir: runs/net}
"""
PIPE = 4096  # bytes; the smallest pipe that Linux makes


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clouds of points that a line parts."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 64).astype(np.int32)
    x = (rng.normal(0, 0.3, (64, 2)) + (2 * label[:, None] - 1)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=label)
    (tmp_path / "net.nn").write_text(MODEL)
    (tmp_path / "dslc.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_eval_predict(dslc: Callable, project: Path) -> None:
    ran = dslc("train")
    assert ran.code == 0, ran.err
    assert "built" in ran.err and "epoch 4/4" in ran.out and "weights in" in ran.out
    assert (project / "build/net/net.safetensors").exists()

    again = dslc("train", "--json", "--epochs", "1")
    assert again.code == 0 and again.json["steps"] == 8 and "built" not in again.err
    values = dslc("eval", "--json").json
    assert values["rows"] == 64 and values["values"]["accuracy"] > 0.9 and values["values"]["loss"] < 0.7
    assert "accuracy" in dslc("eval").out

    ran = dslc("predict", "data.npz:x", "-o", "y.npy")
    assert ran.code == 0 and "float32[64, 2]" in ran.out
    with np.load("data.npz") as data:
        assert (np.load("y.npy").argmax(axis=1) == data["y"]).mean() == pytest.approx(values["values"]["accuracy"])
        np.save("x.npy", data["x"])
    assert dslc("predict", "x=x.npy", "-o", "y.npz", "--artifact", "build/net", "--json").json["results"] == {
        "output": [64, 2]
    }
    np.testing.assert_array_equal(np.load("y.npz")["output"], np.load("y.npy"))


def test_a_change_of_the_source_is_built_again(dslc: Callable, project: Path) -> None:
    assert dslc("train", "--epochs", "1").code == 0
    (project / "net.nn").write_text(MODEL.replace("linear(16)", "linear(17)"))
    ran = dslc("train", "--epochs", "1")
    assert ran.code == 0 and ", because the existing one was built before the model was changed" in ran.err
    ran = dslc("train", "--epochs", "1", "--size", "B=16")
    assert ran.code == 0 and ", because the existing one was built with other options (sizes)" in ran.err
    (project / "net.nn").write_text(MODEL)
    ran = dslc("eval")  # the weights that are there belong to the other model
    assert ran.code == 5 and "error[R305]" in ran.err and "fc.weight" in ran.err


def test_what_was_built_with_other_options_stays(dslc: Callable, project: Path) -> None:
    ran = dslc("info")
    assert ran.code == 0 and "built build/net/net.dslc" in ran.err, "there was none"
    assert dslc("train", "--epochs", "1").code == 0
    assert dslc("build", "--providers", "reference").code == 0
    for command in (["info"], ["mem"], ["predict", "data.npz:x", "-o", "y.npy"], ["bench", "--seconds", "0.1"]):
        ran = dslc(*command)
        said = "used although built with other options (providers)" in ran.err
        assert ran.code == 0 and said == (command[0] in ("predict", "bench")), ran.err
        assert {p["provider"] for p in dslc("info", "--json").json["programs"]} == {"reference"}
    (project / "net.nn").write_text(MODEL.replace("linear(16)", "linear(17)"))
    assert dslc("info").err == ""
    ran = dslc("bench", "--seconds", "0.1")
    assert ran.code == 0 and "because the existing one was built before the model was changed" in ran.err
    assert {p["provider"] for p in dslc("info", "--json").json["programs"]} == {"auto"}


def test_the_same_seed_gives_the_same_weights(dslc: Callable, project: Path) -> None:
    weights = []
    for seed in ("5", "5", "6"):
        assert dslc("train", "--epochs", "1", "--seed", seed).code == 0
        weights.append((project / "build/net/net.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_training_starts_from_given_weights(dslc: Callable, project: Path) -> None:
    assert dslc("train").code == 0
    (project / "build/net/net.safetensors").rename("first.safetensors")
    before = dslc("eval", "--weights", "first.safetensors", "--json").json["values"]["loss"]
    assert dslc("train", "--epochs", "1", "--weights", "first.safetensors").code == 0
    assert dslc("eval", "--json").json["values"]["loss"] < before
    assert dslc("train", "--weights", "first.safetensors", "--resume").code == 2


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (("predict", "data.npz:z", "-o", "y.npy"), 3, "R101"),
        (("predict", "data.npz:y", "-o", "y.npy"), 3, "R102"),
        (("predict", "z=data.npz:x", "-o", "y.npy"), 3, "R105"),
        (("predict", "data.txt", "-o", "y.npy"), 3, "R101"),
        (("train", "--set", "data.train.x=data.npz:z"), 3, "R101"),
        (("train", "--set", "save.best=acuracy"), 3, "R104"),
        (("train", "--resume"), 5, "R307"),
        (("train", "--device", "gpu"), 4, "R201"),
        (("train", "--lr", "1e30"), 7, "R501"),
        (("eval",), 5, "R304"),
    ],
)
def test_faults_have_their_codes(args: tuple[str, ...], code: int, error: str, dslc: Callable, project: Path) -> None:
    if args[0] == "predict":
        assert dslc("train", "--epochs", "1").code == 0
    ran = dslc(*args)
    assert ran.code == code and f"error[{error}]" in ran.err and "Traceback" not in ran.err
    assert not (project / "y.npy").exists()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("train", "--set", "data.train.x=nothing.npz:x"), "R101"),
        (("train", "--set", "data.eval.x=nothing-*.npz:x"), "R101"),
        (("train", "--overfit-one-batch", "--set", "data.train.x=folder/:image"), "R101"),
        (("train", "--weights", "nothing.safetensors"), "R304"),
        (("eval", "--set", "data.eval.x=nothing.npy"), "R101"),
        (("eval", "--weights", "nothing.safetensors"), "R304"),
    ],
)
def test_a_file_that_is_not_there_is_seen_before_a_build(
    args: tuple[str, ...], error: str, dslc: Callable, project: Path
) -> None:
    ran = dslc(*args)
    assert ran.code in (3, 5) and f"error[{error}]" in ran.err and "built" not in ran.err
    assert not (project / "build").exists() and not (project / "runs").exists()


def test_a_file_of_training_is_not_needed_to_evaluate(dslc: Callable, project: Path) -> None:
    (project / "data.npz").rename(project / "kept.npz")
    flags = ("--set", "data.eval.x=kept.npz:x", "--set", "data.eval.label=kept.npz:y")
    assert "error[R304]: no weights" in dslc("eval", *flags).err


def test_an_array_without_a_name_is_for_a_model_of_one_input(dslc: Callable, project: Path) -> None:
    text = "nn 1\ndim B in 1..8 = 4\nmodel Sum(a: [B, 2], b: [B, 2]) -> [B, 2] {\n  return a + b\n}\n"
    (project / "sum.nn").write_text(text)
    assert dslc("build", "sum.nn").code == 0
    ran = dslc("predict", "--artifact", "build/sum", "data.npz:x", "-o", "y.npy")
    assert ran.code == 3 and "error[R105]: the model has the inputs a, b" in ran.err and "a=data.npz:x" in ran.err


def test_predict_wants_a_file_that_holds_arrays(dslc: Callable, project: Path) -> None:
    assert dslc("predict", "data.npz:x", "-o", "y.txt").code == 2


@pytest.mark.parametrize(("number", "code"), thinned([(signal.SIGINT, 130), (signal.SIGTERM, 143)], 2))
@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights(number: int, code: int, project: Path) -> None:
    command = [sys.executable, "-m", "dslc", "train", "--epochs", "120", "--set", "train.eval_every=120 epochs"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=env) as run:
        assert run.stdout is not None
        # The pipe holds fewer lines than the run has: it cannot end before the signal, however busy the machine is.
        fcntl.fcntl(run.stdout, fcntl.F_SETPIPE_SZ, PIPE)
        assert any(line.startswith(b"epoch 3/") for line in run.stdout)
        run.send_signal(number)
        out, err = run.communicate(timeout=100)
    assert run.returncode == code, err
    assert b"dslc train --resume" in out and b"Traceback" not in err
    assert not (project / "build/net/net.safetensors").exists()
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    resumed = (project / "build/net/net.safetensors").read_bytes()
    whole = subprocess.run([*command, "--set", "save.dir=runs/whole"], check=True, capture_output=True)
    assert len(whole.stdout.partition(b"epoch 4/")[2]) > PIPE
    assert (project / "build/net/net.safetensors").read_bytes() == resumed
