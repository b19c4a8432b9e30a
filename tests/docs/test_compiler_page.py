"""docs/compiler.md is true: its stages are those of the code, and what it names exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import pass_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def life() -> ModuleType:
    spec = importlib.util.spec_from_file_location("life", ROOT / "docs/life.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_stage_is_quoted_as_it_is(life: ModuleType) -> None:
    assert life.fill(PAGE) == PAGE, "run `make docs`"
    quoted = re.findall(r"<!-- stage: ([\w-]+) -->", PAGE)
    assert sorted(quoted) == sorted(life.stages())


def test_a_quoted_stage_that_differs_is_found(life: ModuleType) -> None:
    wrong = PAGE.replace("Flat(count=3200, vector=4", "Flat(count=3200, vector=2")
    assert wrong != PAGE and life.fill(wrong) == PAGE


def test_the_ptx_has_the_quoted_lines(life: ModuleType) -> None:
    [lines] = re.findall(r"of the PTX.*?```text\n(.*?)```", PAGE, re.DOTALL)
    text = life.ptx()
    assert len(lines.split("\n")) > 3
    for line in lines.splitlines():
        assert line in text, line


def test_files_and_passes_that_the_page_names_exist() -> None:
    folders = [ROOT / name for name in ("compiler", "dsl", "dslc", "runtime", "tests", "docs")]
    paths = {f"/{path.relative_to(ROOT)}" for folder in folders for path in (folder, *folder.rglob("*"))}
    named = re.findall(r"`([\w/]+(?:/|\.(?:py|cu|md)))(?::[^`]*)?`", PAGE)
    assert len(named) > 30
    assert [name for name in named if not any(path.endswith(f"/{name.rstrip('/')}") for path in paths)] == []
    passes = re.findall(r"--(?:after|diff) ([a-z_]+)", PAGE)
    assert passes and set(passes) <= {pass_name(step) for step in PIPELINE}
