"""The layout: what a wheel holds, and that the floors are imported under their own names only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from places import ROOT

FLOORS = ("dsl", "compiler", "runtime")


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_refuses_to_be_imported_by_its_folders_name(floor: str) -> None:
    ran = subprocess.run([sys.executable, "-c", f"import {floor}"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1 and f"import this package as dslc.{floor}" in ran.stderr
    subprocess.run([sys.executable, "-c", f"import dslc.{floor}"], cwd=ROOT, check=True)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_floors_are_relative_links(floor: str) -> None:
    assert os.readlink(ROOT / "dslc" / floor) == f"../{floor}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a clean copy of what git knows, unpacked."""
    source, out, unpacked = (tmp_path_factory.mktemp(name) for name in ("source", "wheel", "unpacked"))
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    packaged = ("dslc", *FLOORS, "pyproject.toml", "README.md", "LICENSE")
    names = [n for n in tracked.decode().split("\0") if n.split("/")[0] in packaged and (ROOT / n).exists()]
    listed = subprocess.run(["tar", "-cf", "-", *names], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xf", "-"], cwd=source, input=listed, check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    ran = subprocess.run(pip, cwd=source, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    [file] = out.glob("*.whl")
    with zipfile.ZipFile(file) as content:
        content.extractall(unpacked)
    return unpacked


@pytest.mark.slow
def test_a_wheel_holds_dslc_alone_and_all_of_it(wheel: Path) -> None:
    assert {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")} == {"dslc"}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    wanted = set()
    for name in tracked.split("\0"):
        floor, _, rest = name.partition("/")
        if floor in FLOORS and rest:
            wanted.add(f"dslc/{floor}/{rest}")
        elif floor == "dslc" and rest not in FLOORS:
            wanted.add(name)
    missing = {name for name in wanted if not (wheel / name).exists()}
    assert not missing
    assert (wheel / "dslc/base/pages/E0001.md").exists() and (wheel / "dslc/dsl/grammar_tables.json").exists()


@pytest.mark.slow
def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(wheel)}

    def dslc(*args: str, cwd: Path) -> str:
        code = "import dslc, sys; print(dslc.__file__, file=sys.stderr); from dslc.cli import main; main()"
        ran = subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.startswith(str(wheel))
        return ran.stdout

    dslc("new", "spam", cwd=tmp_path)
    assert "Net(point: [B, 2])" in dslc("check", "spam.nn", cwd=tmp_path / "spam")
    assert "epoch 2/2" in dslc("train", "--epochs", "2", cwd=tmp_path / "spam")
    assert dslc("explain", "E0301", cwd=tmp_path).startswith("# E0301")
