"""Whatever a project holds where dslc writes: nothing outside of the project changes, or comes into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SECRET = b"a secret of the user's, of more than a few bytes"
NET = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2]) -> [B, 2] {
  return x |> linear(2) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""
CONFIG = """model: net.nn
data:
  train: {x: data.npz:x, label: data.npz:y}
train: {epochs: 2, seed: 1}
"""
COMMANDS = (["train"], ["train", "--resume", "--epochs", "3"], ["build", "--size", "B=4"], ["fmt", "."])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    np.savez(folder / "data.npz", x=np.ones((16, 2), np.float32), y=np.zeros(16, np.int32))
    (folder / "net.nn").write_text(NET)
    (folder / "dslc.yaml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    return folder


def outside(folder: Path) -> Path:
    """A folder of the user's with a file, which no link may lead dslc to."""
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


def unchanged(folder: Path) -> bool:
    return os.listdir(folder) == ["secret"] and (folder / "secret").read_bytes() == SECRET


def holds_secret(folder: Path) -> list[str]:
    files = (f for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
    return [str(f) for f in files if SECRET in f.read_bytes()]


@pytest.mark.slow
def test_a_link_in_place_of_anything_that_is_written(dslc: Callable, project: Path, tmp_path: Path) -> None:
    assert dslc("train").code == 0
    assert dslc("train").code == 0  # which keeps the weights of before, and takes runs/net-2
    whole = shutil.copytree(project, tmp_path / "whole", symlinks=True)
    written = sorted(p.relative_to(project) for top in ("build", "runs") for p in (project / top).rglob("*"))
    written += [Path("build"), Path("runs"), Path("runs/net-3"), Path("runs/net/events"), Path("build/net/.dslc-lock"),
                Path("runs/net-2/.dslc-run"), Path("runs/net/.dslc-run"), Path("other.nn")]  # fmt: skip
    assert len(written) > 20
    refused = 0
    for number, (place, command) in enumerate((p, c) for p in written for c in COMMANDS):
        shutil.rmtree(project)
        shutil.copytree(whole, project, symlinks=True)
        os.chdir(project)
        there = outside(tmp_path / f"outside{number}")
        target = project / place
        folder = target.is_dir() or (not target.suffix and not target.name.startswith("."))
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        target.symlink_to(there if folder else there / "secret")
        ran = dslc(*command)
        assert unchanged(there), (place, command, ran)
        assert not holds_secret(project), (place, command)
        assert ran.code in (0, 2, 5, 6), (place, command, ran)
        refused += "leads out of the project" in ran.err
        shutil.rmtree(there)
    assert refused >= 10, "the links were met"


@pytest.mark.parametrize("text", ["../out", "runs/../../out", "{out}"])
def test_save_dir_of_the_file_stays_in_the_project(dslc: Callable, project: Path, tmp_path: Path, text: str) -> None:
    there = outside(tmp_path / "out")
    (project / "dslc.yaml").write_text(f"{CONFIG}save: {{dir: '{text.format(out=there)}'}}\n")
    ran = dslc("train")
    assert unchanged(there) and ran.code == 3
    assert "leads out of the project" in ran.err and "dslc.yaml:5:" in ran.err


def test_a_run_that_lies_elsewhere_is_not_gone_on_with(dslc: Callable, project: Path, tmp_path: Path) -> None:
    assert dslc("train").code == 0
    (project / "runs/net").rename(tmp_path / "far")
    (project / "runs/net-9").symlink_to(tmp_path / "far")
    before = sorted((p, p.read_bytes()) for p in (tmp_path / "far").rglob("*") if p.is_file())
    for command in (["train", "--resume", "--epochs", "3"], ["train", "--find-nan"]):
        ran = dslc(*command)
        assert ran.code == 6 and "leads out of the project" in ran.err
    assert sorted((p, p.read_bytes()) for p in (tmp_path / "far").rglob("*") if p.is_file()) == before


def test_what_the_command_line_names_may_lie_anywhere(
    dslc: Callable, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dslc("train", "--set", f"save.dir={tmp_path}/a").code == 0
    monkeypatch.setenv("DSLC_SAVE_DIR", str(tmp_path / "b"))
    assert dslc("train").code == 0
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    assert dslc("build", "-o", tmp_path / "link").code == 0
    assert (tmp_path / "a/checkpoints").is_dir() and (tmp_path / "b/checkpoints").is_dir()
    assert (tmp_path / "far/net/net.dslc").exists()


def test_a_project_may_itself_be_reached_through_a_link(dslc: Callable, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    os.chdir(tmp_path / "link")
    assert dslc("train", "--config", tmp_path / "link/dslc.yaml").code == 0
    (project / "elsewhere").mkdir()
    shutil.rmtree(project / "runs")
    (project / "runs").symlink_to("elsewhere")  # a link within the project
    assert dslc("train").code == 0 and (project / "elsewhere/net/checkpoints").is_dir()
