"""The layout: names of the floors, sizes of files and folders, and a docstring for each stage of the compiler."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from places import ROOT

FLOORS = ("dsl", "compiler", "runtime")
CODE = {".py", ".cu", ".cuh", ".h", ".lark"}
MOST_FILES, MOST_LINES = 24, 300
#: Files that are longer. Both tables may only shrink: split a file by what its parts do, then delete its name here.
LONG = {
    "compiler/ops/index/scatter.py",
    "runtime/session/session.py",
}
#: Those of more than 400 lines, with their limits.
LONGEST: dict[str, int] = {}
#: The stages whose packages say what they do, in which order, and where a new file goes.
STAGES = ("compiler/passes", "compiler/codegen")


def code_files() -> list[Path]:
    """The files of code of this project, relative to its root."""
    found = [path for top in (*FLOORS, "dslc") for path in (ROOT / top).rglob("*") if path.suffix in CODE]
    inside = [path.relative_to(ROOT) for path in found]
    return [path for path in inside if not (path.parts[0] == "dslc" and path.parts[1] in FLOORS)]


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_refuses_to_be_imported_by_its_folders_name(floor: str) -> None:
    ran = subprocess.run([sys.executable, "-c", f"import {floor}"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1 and f"import this package as dslc.{floor}" in ran.stderr
    subprocess.run([sys.executable, "-c", f"import dslc.{floor}"], cwd=ROOT, check=True)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_floors_are_relative_links(floor: str) -> None:
    assert os.readlink(ROOT / "dslc" / floor) == f"../{floor}"


def test_folders_have_few_files() -> None:
    count = Counter(path.parent.as_posix() for path in code_files())
    assert len(count) > 60
    assert not {folder: n for folder, n in count.items() if n > MOST_FILES}, (
        "split these folders by what their files do"
    )


def test_files_are_short() -> None:
    lines = {path.as_posix(): (ROOT / path).read_bytes().count(b"\n") for path in code_files()}
    limits = {name: LONGEST.get(name, 400 if name in LONG else MOST_LINES) for name in lines}
    too_long = {name: n for name, n in lines.items() if n > limits[name]}
    assert not too_long, f"split these files by what their parts do: {too_long}"


def test_only_long_files_are_exceptions() -> None:
    lines = {path.as_posix(): (ROOT / path).read_bytes().count(b"\n") for path in code_files()}
    done = {name for name in LONG | LONGEST.keys() if lines.get(name, 0) <= MOST_LINES}
    done |= {name for name in LONGEST if lines.get(name, 0) <= 400}
    assert not done and not LONG & LONGEST.keys(), f"no longer so long, delete or move them in the tables above: {done}"


@pytest.mark.parametrize("stage", STAGES)
def test_a_package_of_a_stage_says_what_it_does(stage: str) -> None:
    packages = [path for path in code_files() if path.name == "__init__.py" and path.as_posix().startswith(stage)]
    assert len(packages) > 10
    silent = [str(path) for path in packages if not ast.get_docstring(ast.parse((ROOT / path).read_text()))]
    assert not silent, f"say in one sentence what the package does: {silent}"
