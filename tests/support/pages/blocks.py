"""The code blocks of a page, run in their order as a reader would: files are written, commands run, outputs compared.

```python title="draw.py"      the file draw.py in the current folder
```sh                          commands of bash; a `cd` holds for what follows
```text                        after commands: what they print; `...` stands for anything, a line `...` for lines
```sh test="skip"              not run: it installs something
$DSLC                          the folder of the repository
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
LIMIT = 120  # seconds of a block


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str
    line: int
    skipped: bool


def blocks(page: str) -> Iterator[Block]:
    for found in _FENCE.finditer(page):
        given = dict(_ATTRIBUTE.findall(found[2]))
        line = page[: found.start()].count("\n") + 1
        yield Block(found[1], given.get("title"), found[3], line, given.get("test") == "skip")


def like(expected: str) -> re.Pattern[str]:
    """What an output must match."""
    lines = expected.strip().split("\n")
    whole = "\n".join(r"(?:.*\n)*?.*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in lines)
    return re.compile(whole + r"\Z")


def run_page(path: Path, folder: Path) -> int:
    """Run the blocks of a page in an empty folder; how many. AssertionError at the first that fails."""
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": "",
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "DSLC": str(ROOT),
    }
    here, printed, ran = folder, None, 0
    for block in blocks(path.read_text(encoding="utf-8")):
        place = f"{path.name}:{block.line}"
        if block.skipped:
            continue
        if block.title is not None:
            (here / block.title).parent.mkdir(parents=True, exist_ok=True)
            (here / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            script = f"set -euo pipefail\n{block.text}\npwd > {folder}/.here\n"
            found = subprocess.run(
                ["bash", "-c", script], cwd=here, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=LIMIT,
            )  # fmt: skip
            assert found.returncode == 0, f"{place} ended with {found.returncode}:\n{found.stdout}"
            here, printed = Path((folder / ".here").read_text().strip()), found.stdout
        elif block.language == "python":
            command = [sys.executable, "-c", block.text]
            found = subprocess.run(
                command, cwd=here, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT
            )
            assert found.returncode == 0, f"{place} ended with {found.returncode}:\n{found.stdout}"
            printed = found.stdout
        elif block.language == "text":
            assert printed is not None, f"{place}: an output before any command"
            assert like(block.text).match(printed.strip()), f"{place}: expected\n{block.text}\nprinted\n{printed}"
        else:
            raise AssertionError(f"{place}: nobody runs a block of {block.language or 'no language'} without a title")
        ran += 1
    return ran
