"""Bad data is refused before anything is compiled, by every command that reads it, with the error that a run gives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from safetensors.numpy import save_file

from dslc.base.filelock import FileLock
from dslc.runtime.sweep.state import State

MODEL = """nn 1
dim B in 1..64 = 4
model Net(x: [B, 3]) -> [B, 2] { return x |> linear(2) }
train Net(y: i32[B]) { loss = cross_entropy(output, y); optimizer = sgd(lr=0.1) }
"""
CONFIG = """model: net.nn
data:
  train: {x: "t.csv:a..c", y: "t.csv:y"}
  eval: {x: "t.csv:a..c", y: "t.csv:y"}
train: {epochs: 1}
"""
GOOD = "a,b,c,y\n" + "1,2,3,0\n4,5,6,1\n" * 4


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(MODEL)
    (tmp_path / "dslc.yaml").write_text(CONFIG)
    (tmp_path / "t.csv").write_text(GOOD)
    return tmp_path


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object, **more: object) -> NoReturn:
        raise AssertionError("a build began before the data was checked")

    monkeypatch.setattr("dslc.cli.compile.publish", compiled)


BAD = [
    (GOOD.replace("4,5,6,1", "4,5,6,2", 1), "R103", "record 1: the value 2 is out of range"),
    (GOOD.replace("4,5,6,1", "4,5,6,x", 1), "R101", "'x' is not an integer"),
    (GOOD.replace("4,5,6,1", "4,five,6,1", 1), "R101", "'five' is not a number"),
    (GOOD.replace("4,5,6,1", "4,nan,6,1", 1), "R103", "record 1: the value nan is not finite"),
    (GOOD.replace("a,b,c,y", "a,b,d,y", 1), "R102", "there is no column `c`"),
    (GOOD.replace("a,b,c,y", "a,b,q,c,y", 1), "R102", "4 columns"),
    ("a,b,c,y\n", "R106", "there are no rows"),
    ("", "R10", ""),
]
COMMANDS = [("train",), ("train", "--overfit-one-batch"), ("train", "--find-nan"), ("eval",), ("check", "--data")]


@pytest.mark.parametrize(("text", "code", "says"), BAD)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.usefixtures("no_build")
def test_bad_data_is_refused_before_the_build(
    command: tuple[str, ...], text: str, code: str, says: str, project: Path, dslc: Callable
) -> None:
    (project / "t.csv").write_text(text)
    ran = dslc(*command)
    assert ran.code == 3 and f"error[{code}" in ran.err and says in ran.err, ran.err
    assert not (project / "build").exists() and not (project / "runs").exists()


READING = [  # what each command reads, and the error if it is wrong
    (("predict", "missing.csv", "-o", "y.csv"), "R101"),
    (("predict", "x=missing.csv:a..c", "-o", "y.csv"), "R101"),
    (("predict", "missing/*.npz:x", "-o", "y.csv"), "R101"),
    (("predict", "t.csv:a..q", "-o", "y.csv"), "R102"),
    (("predict", "t.csv:a..b", "-o", "y.csv"), "R102"),
    (("predict", "z=t.csv", "-o", "y.csv"), "R105"),
    (("predict", "t.csv", "--rows", "missing.csv:id", "-o", "y.csv"), "R101"),
    (("predict", "t.csv", "--rows", "t.csv:id", "-o", "y.csv"), "R102"),
    (("predict", "t.csv", "-o", "missing/y.csv"), "R105"),
    (("predict", "t.csv", "-o", "y.csv", "--weights", "missing.safetensors"), "R304"),
    (("eval", "--weights", "missing.safetensors"), "R304"),
    (("train", "--weights", "missing.safetensors"), "R304"),
]


@pytest.mark.parametrize(("command", "code"), READING, ids=lambda part: " ".join(part) if part[0] != "R" else part)
@pytest.mark.usefixtures("no_build")
def test_what_a_command_reads_is_checked_before_the_build(
    command: tuple[str, ...], code: str, project: Path, dslc: Callable
) -> None:
    publish_weights(project)
    before = sorted(path.name for path in project.iterdir())
    ran = dslc(*command)
    assert ran.code == (5 if code == "R304" else 3) and f"error[{code}" in ran.err, ran.err
    assert sorted(path.name for path in project.iterdir()) == before


@pytest.mark.parametrize("command", [("predict", "t.csv", "-o", "y.csv"), ("predict", "-o", "y.csv"), ("eval",)])
@pytest.mark.usefixtures("no_build")
def test_missing_weights_are_told_before_the_build(command: tuple[str, ...], project: Path, dslc: Callable) -> None:
    ran = dslc(*command)
    assert ran.code == 5 and "error[R304]" in ran.err and "dslc train" in ran.err, ran.err
    assert not (project / "build").exists()


@pytest.mark.usefixtures("no_build")
def test_bad_rows_are_refused_before_the_build(project: Path, dslc: Callable) -> None:
    publish_weights(project)
    (project / "t.csv").write_text(GOOD.replace("4,5,6,1", "4,five,6,1", 1))
    ran = dslc("predict", "t.csv", "-o", "y.csv")
    assert ran.code == 3 and "error[R101" in ran.err and "'five' is not a number" in ran.err, ran.err


def test_weights_to_start_from_are_matched_before_the_build(
    project: Path, dslc: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {
        "zip": (b"PK\x03\x04 a file of PyTorch", (), "R306", "safetensors"),
        "names": ({"fc.weight": (2, 3), "fc.bias": (2,)}, (), "R305", "linear.weight"),
        "shape": ({"linear.weight": (2, 4), "linear.bias": (2,)}, (), "R305", "linear.weight"),
        "half": ({"linear.bias": (2,)}, ("--partial",), "R305", "half"),
        "map": ({"linear.weight": (2, 3), "linear.bias": (2,)}, ("--map", "fc=linear"), "R305", "fc"),
        "head": ({"linear.weight": (2, 3), "linear.bias": (2,)}, ("--replace", "head"), "R305", "head"),
    }
    with monkeypatch.context() as patch:
        patch.setattr("dslc.cli.compile.publish", lambda *args, **more: pytest.fail("a build began"))
        for name, (content, options, code, says) in bad.items():
            path = project / f"{name}.safetensors"
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                save_file({tensor: np.zeros(shape, np.float32) for tensor, shape in content.items()}, path)
            ran = dslc("train", "--weights", path.name, *options)
            assert f"error[{code}]" in ran.err and says in ran.err, (name, ran.err)
            assert not (project / "build").exists() and not (project / "runs").exists(), name
    save_file({"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)}, "good.safetensors")
    ran = dslc("train", "--weights", "good.safetensors", "--map", "fc=linear")
    assert ran.code == 0 and "2 of 2 tensors" in ran.out, ran.err


def publish_weights(project: Path) -> None:
    """Weights as a training leaves them, without the artifact."""
    folder = project / "build" / "net"
    folder.mkdir(parents=True)
    tensors = {"linear.weight": np.zeros((3, 2), np.float32), "linear.bias": np.zeros(2, np.float32)}
    save_file(tensors, folder / "net.safetensors")


def test_a_prediction_uses_the_data_that_was_opened_before_the_build(
    project: Path, dslc: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dslc.runtime.predict import rows

    dslc("train", "--json")
    opened: list[str] = []
    real = rows.DataSection
    monkeypatch.setattr(rows, "DataSection", lambda *a, **m: (opened.append(a[3]), real(*a, **m))[1])
    assert dslc("predict", "t.csv", "-o", "y.csv").code == 0 and len(opened) == 1
    expected = (project / "y.csv").read_bytes()
    (project / "dslc.yaml").write_text(CONFIG + "build: {sizes: {predict: {B: 2}}}\n")  # another artifact is used
    assert dslc("predict", "t.csv", "-o", "y.csv").code == 0 and len(opened) == 3
    assert (project / "y.csv").read_bytes() == expected


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("a..c", "a..b", "R102"),  # too few columns
        ("epochs: 1", "epochs: 1, stop: {metric: acuracy, patience: 2}", "R104"),
        ("t.csv:y", "missing.csv:y", "R101"),
        ("model: net.nn", "model: net.nn\nbuild: {sizes: {train: {B: 16}}}", "R106"),
        ("{x:", "{z:", "R102"),
    ],
)
def test_a_bad_configuration_is_refused_before_the_build(
    old: str, new: str, says: str, project: Path, dslc: Callable
) -> None:
    (project / "dslc.yaml").write_text(CONFIG.replace(old, new))
    for command in (("train",), ("check", "--data")):
        ran = dslc(*command)
        assert ran.code == 3 and f"error[{says}]" in ran.err, ran.err
    assert not (project / "build").exists()


def test_good_data_is_opened_once(project: Path, dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.runtime.train import setup

    opened: list[str] = []
    real = setup.DataSection
    monkeypatch.setattr(setup, "DataSection", lambda *a, **m: (opened.append(a[3]), real(*a, **m))[1])
    assert dslc("train", "--json").json["steps"] == 2
    assert opened == ["data.train", "data.eval"]
    opened.clear()
    assert dslc("eval", "--json").json["rows"] == 8
    assert opened == ["data.eval"]
    ran = dslc("check", "--data", "--json")
    assert ran.code == 0 and ran.json["data"] == {"train": 8, "evaluate": 8}
    assert "8 rows to train" in dslc("check", "--data").out
    assert dslc("check", "--data", "net.nn").code == 2


def test_what_is_foreseen_is_what_a_build_promises(project: Path) -> None:
    from dslc.cli.build_options import options_of
    from dslc.cli.compile import check_config, foreseen
    from dslc.compiler.pipeline import build
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.config.load import load_config

    for flags in ({}, {"build.precision": "f64"}, {"build.sizes": {"train": {"B": 8}, "predict": {"B": [1, 3]}}}):
        config = load_config(project / "dslc.yaml", {"build.providers": "reference", **flags})
        said = foreseen(config, check_config(config))
        built = build(check_config(config), options_of(config.build)).artifact
        made = Artifact.of_bytes(built, place="net.dslc", path=project / "net.dslc")
        assert said.interface == Interface.of_header(made.header["interface"]) and said.name == made.header["name"]
        for entry in ("train_step", "eval_step", "predict"):
            promised = [dict(program.sizes) for program in said.programs(entry)]
            assert promised == [dict(program.sizes) for program in made.programs(entry)]


def test_the_rows_are_those_of_the_file(project: Path, dslc: Callable) -> None:
    """The control: other rows give another loss, so the run reads the plan that was made before the build."""
    first = dslc("train", "--json").json["metrics"]
    rows = np.loadtxt(project / "t.csv", delimiter=",", skiprows=1)
    rows[:, 0] += 1
    (project / "t.csv").write_text("a,b,c,y\n" + "".join(f"{a},{b},{c},{y:.0f}\n" for a, b, c, y in rows))
    assert dslc("train", "--json").json["metrics"] != first


@pytest.mark.parametrize(
    ("sinks", "code", "says"),
    [("mlflow=true", "R205", "pip install 'dslc[mlflow]'"), ("mlfow=true", "R101", "did you mean `mlflow`?")],
)
@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.usefixtures("no_build")
def test_a_missing_sink_is_told_before_the_build(
    command: str, sinks: str, code: str, says: str, project: Path, dslc: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    (project / "dslc.yaml").write_text(CONFIG + "sweep: {space: {train.seed: [1, 2]}}\n")
    ran = dslc(command, "--set", f"save.sinks.{sinks}")
    assert ran.code in (3, 4) and f"error[{code}" in ran.err and says in ran.err, ran.err
    assert not (project / "build").exists() and not (project / "runs/net").exists()


@pytest.fixture
def no_sweep_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object, **more: object) -> NoReturn:
        raise AssertionError("a build began before the sweep's folder was looked at")

    monkeypatch.setattr("dslc.compiler.cached_build.finished", compiled)


@pytest.mark.usefixtures("no_sweep_build")
def test_a_sweep_that_runs_already_is_told_before_the_build(project: Path, dslc: Callable) -> None:
    (project / "dslc.yaml").write_text(CONFIG + "sweep: {space: {train.seed: [1, 2]}}\n")
    folder = project / "runs/sweep"
    folder.mkdir(parents=True)
    with FileLock(folder / ".dslc-sweep", what="sweep"):
        ran = dslc("sweep")
    assert ran.code == 6 and "error[R404]: sweep by pid" in ran.err, ran.err


@pytest.mark.usefixtures("no_sweep_build")
def test_a_sweep_with_other_values_is_refused_before_the_build(project: Path, dslc: Callable) -> None:
    (project / "dslc.yaml").write_text(CONFIG + "sweep: {space: {train.seed: [1, 2]}}\n")
    folder = project / "runs/sweep"
    folder.mkdir(parents=True)
    State({"method": "random"}).write(folder)
    ran = dslc("sweep")
    assert ran.code == 5 and "error[R307]: the sweep was started with other values" in ran.err, ran.err


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.usefixtures("no_build")
def test_rows_that_the_sizes_of_eval_do_not_cover_are_told_before_the_build(
    held: bool, project: Path, dslc: Callable
) -> None:
    """Eight rows, or the three of a split, in batches of five; with batches of one, too, they are covered."""
    (project / "t.csv").write_text("a,b,c,y\n" + "1,2,3,0\n" * 8)
    config = CONFIG.replace('  eval: {x: "t.csv:a..c", y: "t.csv:y"}\n', "  split: 0.4\n") if held else CONFIG
    for sizes, code in (("5", 3), ("[1, 5]", 70)):  # 70: the build, which the fixture ends
        (project / "dslc.yaml").write_text(config + f"build: {{sizes: {{eval: {{B: {sizes}}}}}}}\n")
        ran = dslc("train")
        assert ran.code == code, ran.err
        assert ("rows do not divide into batches of 5" in ran.err) == (code == 3), ran.err
        assert ("--size eval:B=1,5" in ran.err) == (code == 3), ran.err
