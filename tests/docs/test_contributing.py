"""CONTRIBUTING.md: every worked example runs as it stands, in a copy of the tree.

A comment and a line before a block say to which example it belongs and what becomes of it, in the order of the page::

    <!-- EXAMPLE -->
    New file `PATH`:
    Change `PATH`:      the block is a diff: its lines with ``-`` or a space are replaced, and occur once
    Run:                each line is a command, which must succeed
    It prints:          the output of the last command
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = (
    "compiler", "docs", "dsl", "dslc", "examples/gpt", "runtime", "tests",
    "pyproject.toml", "CONTRIBUTING.md", "README.md",
)  # fmt: skip
PROGRAMS = {"pytest": ["-m", "pytest", "-q", "-p", "no:cacheprovider"], "dslc": ["-m", "dslc"], "ruff": ["-m", "ruff"]}


@dataclass(frozen=True)
class Block:
    example: str
    what: str  # New file, Change, Run, It prints
    path: str
    text: str


def blocks(page: str) -> list[Block]:
    found = re.findall(
        r"^<!-- (\w+) -->\n(New file|Change|Run|It prints)(?: `(.+?)`)?:\n\n```\w+\n(.*?)^```$",
        page,
        re.MULTILINE | re.DOTALL,
    )
    return [Block(*each) for each in found]


EXAMPLES = list(dict.fromkeys(block.example for block in blocks(PAGE)))


def changed(text: str, diff: str) -> str:
    """The text with the diff's old lines replaced by its new ones."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert (count := f"\n{text}".count(f"\n{old}")) == 1, f"{count} times in the file:\n{old}"
    return f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]


def command(folder: Path, line: str) -> str:
    """What the command prints."""
    program, *rest = shlex.split(line)
    words = [sys.executable, *PROGRAMS.get(program, []), *rest]
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"}
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def play(folder: Path, page: list[Block]) -> Iterator[tuple[str, str]]:
    """Follows an example; the printed texts that the page shows, and those that were printed."""
    last = ""
    for block in page:
        target = folder / block.path
        match block.what:
            case "Run":
                for line in block.text.splitlines():
                    last = command(folder, line)
            case "It prints":
                yield block.text, last
            case "Change":
                target.write_text(changed(target.read_text(encoding="utf-8"), block.text), encoding="utf-8")
            case "New file":
                assert not target.exists(), f"{block.path} exists"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tree, with its bytecode, whose times of change are kept."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
        else:
            shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_it_stands(copy: Path, example: str) -> None:
    page = [block for block in blocks(PAGE) if block.example == example]
    assert any(block.what == "Run" for block in page)
    for shown, printed in play(copy, page):
        assert shown == printed


def test_the_files_of_examples_are_clean(tmp_path: Path) -> None:
    """As ``make check`` wants them, but for types."""
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    for block in blocks(PAGE):
        if block.what == "New file" and block.path.endswith(".py"):
            (tmp_path / block.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.path).write_text(block.text, encoding="utf-8")
    command(tmp_path, "ruff check .")
    command(tmp_path, "ruff format --check .")


def test_every_section_has_an_example_and_every_block_is_read() -> None:
    assert EXAMPLES == ["op", "kernel", "optimizer", "fusion", "pass", "target", "format"]
    assert len(blocks(PAGE)) == PAGE.count("<!-- ") > 20


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("Run:\n\n```text\npython -c 'raise SystemExit(1)'\n```", "python"),
        ("Change `f.py`:\n\n```diff\n-gone\n+new\n```", "0 times"),
        ("New file `f.py`:\n\n```python\n```", "exists"),
    ],
)
def test_a_wrong_example_fails(tmp_path: Path, page: str, why: str) -> None:
    (tmp_path / "f.py").write_text("old\n")
    with pytest.raises(AssertionError, match=why):
        list(play(tmp_path, blocks(f"<!-- a -->\n{page}\n")))


def test_a_diff_replaces_whole_lines() -> None:
    assert changed("a = 1\nb = a = 1\nc\n", " a = 1\n+new\n") == "a = 1\nnew\nb = a = 1\nc\n"
