"""``dslc new`` and ``dslc config``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from places import ROOT


def test_new_makes_a_project(dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = dslc("new", "spam", "--json")
    assert ran.code == 0
    files = sorted(path.name for path in (tmp_path / "spam").iterdir())
    assert files == sorted(ran.json["files"]) and {"spam.nn", "dslc.yaml", "spirals.npz"} <= set(files)
    texts = [(tmp_path / "spam" / file).read_bytes() for file in files if not file.endswith(".npz")]
    assert all(b"NAME" not in text for text in texts)
    monkeypatch.chdir(tmp_path / "spam")
    assert {"name": "model", "value": "spam.nn", "origin": "dslc.yaml:1:8"} in dslc("config", "--json").json["values"]
    again = dslc("new", tmp_path / "spam")
    assert again.code == 6 and "R403" in again.err
    (tmp_path / "eggs").mkdir()
    monkeypatch.chdir(tmp_path / "eggs")
    here = dslc("new", ".")
    assert here.code == 0 and "cd " not in here.out and Path("eggs.nn").exists()
    assert dslc("check").code == 0


@pytest.mark.parametrize("name", ["json", "class", "9lives", "a-b", "__x", "größe", "x" * 65, "numpy"])
def test_new_refuses_names_that_cannot_be_imported(name: str, dslc: Callable, tmp_path: Path) -> None:
    ran = dslc("new", tmp_path / name)
    assert ran.code == 2 and "error[E0604]" in ran.err and not list(tmp_path.iterdir())
    assert ("choose another" in ran.err) == (name in ("json", "class", "numpy"))


@pytest.mark.parametrize("where", ["examples/mlp", "dslc/cli/scaffold"])
def test_the_committed_data_is_what_the_script_draws(where: str, tmp_path: Path) -> None:
    script = next((ROOT / where).glob("make_data.py*")).read_text()
    (tmp_path / "make_data.py").write_text(script)
    subprocess.run([sys.executable, "make_data.py"], cwd=tmp_path, check=True)
    with np.load(tmp_path / "spirals.npz") as drawn, np.load(ROOT / where / "spirals.npz") as committed:
        assert set(drawn.files) == set(committed.files)
        for name in drawn.files:
            # The last bit of sin and cos may differ by machine.
            np.testing.assert_allclose(drawn[name], committed[name], atol=1e-6)


def test_the_digits_are_as_declared() -> None:
    with np.load(ROOT / "examples/digits/digits.npz") as data, np.load(ROOT / "examples/vae/digits.npz") as flat:
        for split, rows in (("train", 1437), ("test", 360)):
            x, y = data[f"{split}_x"], data[f"{split}_y"]
            assert x.shape == (rows, 1, 28, 28) and x.dtype == np.float32
            assert y.shape == (rows,) and y.dtype == np.int32 and set(y) == set(range(10))
            assert x.min() == 0 and x.max() == 1 and set(np.unique(x * 16)) <= set(range(17))
            assert (x[:, 0, ::7, ::7] == x[:, 0, 1::7, 1::7]).all()  # enlarged: neighbours are equal
            assert (flat[f"{split}_x"] == x.reshape(rows, 784)).all()


@pytest.mark.parametrize(
    "example", ["digits", "mlp", "vae", "unet", "charlm", "lstm", "forecast", "inception", "resnet"]
)
def test_config_reads_every_example(example: str, dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / example)
    ran = dslc("config")
    assert ran.code == 0 and "dslc.yaml:1:8" in ran.out


def test_flags_win_over_variables_over_the_file(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "digits")
    monkeypatch.setenv("DSLC_TRAIN_SEED", "4")
    monkeypatch.setenv("DSLC_TRAIN_EPOCHS", "5")
    ran = dslc(
        *("config", "--json", "--epochs", "2", "-D", "classes=11"),
        *("--size", "train:B=16", "--size", "eval:B=1,8", "--set", "save.keep=3"),
    )
    values = {entry["name"]: (entry["value"], entry["origin"]) for entry in ran.json["values"]}
    assert values["train.epochs"] == (2, "flag")
    assert values["train.seed"] == (4, "DSLC_TRAIN_SEED")
    assert values["args.classes"] == (11, "flag")
    assert values["save.keep"] == (3, "flag")
    assert values["build.sizes"][0] == {"train": {"B": 16}, "predict": {"B": [1, 64]}, "eval": {"B": [1, 8]}}


def test_a_size_without_an_entry_is_that_of_training(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "digits")

    def sizes(*flags: str) -> object:
        values = dslc("config", "--json", *flags).json["values"]
        return next(entry["value"] for entry in values if entry["name"] == "build.sizes")

    assert sizes() == {"train": {"B": 64}, "predict": {"B": [1, 64]}}
    # What predict is built for follows from it, as if the file said nothing.
    assert sizes("--size", "B=16") == {"train": {"B": 16}}
    assert sizes("--size", "B=16", "--size", "predict:B=4") == {"train": {"B": 16}, "predict": {"B": 4}}
    assert sizes("--size", "B=1,8") == {"train": {"B": 64}, "eval": {"B": [1, 8]}, "predict": {"B": [1, 8]}}


@pytest.mark.parametrize(
    "flags",
    [
        ["-D", "classes"],
        ["-D", "a=1", "-D", "a=2"],
        ["--size", "B"],
        ["--size", "B=1,,2"],
        ["--size", "init:B=1"],
        ["--size", "B=1", "--size", "B=2"],
        ["--set", "save.kep=3"],
        ["--set", "args=3"],
    ],
)
def test_flags_that_make_no_sense(flags: list[str], dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "digits")
    ran = dslc("config", *flags)
    assert ran.code == 2 and "Invalid value" in ran.err


def test_no_configuration(dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = dslc("config")
    assert ran.code == 3 and "error[R101]" in ran.err and "dslc new" in ran.err


def test_new_leaves_no_files_when_it_cannot_write(dslc: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    ran = dslc("new", tmp_path / "file" / "spam")
    assert ran.code == 6 and "error[R402]" in ran.err and "Traceback" not in ran.err


def test_new_stopped_in_the_middle_leaves_no_files(
    dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSLC_FAILPOINT", "publish.rename:3:enospc")
    log = tmp_path / "fired"
    monkeypatch.setenv("DSLC_FAILPOINT_LOG", str(log))
    code = "import sys; from dslc.cli.app import run; sys.exit(run(sys.argv[1:]))"
    ran = subprocess.run([sys.executable, "-c", code, "new", str(tmp_path / "spam")], capture_output=True, text=True)
    assert "publish.rename" in log.read_text()  # it fired
    assert ran.returncode == 6 and "error[R402]" in ran.stderr and not (tmp_path / "spam").exists()


@pytest.mark.parametrize("text", ["epochs", "train.epochs", "=3", "train.epoch=3", "args.=3", "args.a b=3", "train=3"])
def test_a_set_that_names_no_field_is_refused_by_its_text(
    tmp_path: Path, dslc: Callable, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dslc.yaml").write_text("model: m.nn\n")
    ran = dslc("config", "--set", text)
    assert ran.code == 2 and "is not FIELD=VALUE" in ran.err and "--set" in ran.err
