"""Planted faults as text: where, what stands there, what is put in its place, and which tests should notice.

``tables/*.toml`` has them, grouped by area. A fault's text stands in its file exactly once. After files were moved,
``python tests/mutation/run.py --relocate`` rewrites the tables: paths of sources and tests that git knows to have been
renamed, committed or not, and the files of texts that have moved to another one.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).resolve().parent / "tables"


@dataclass(frozen=True)
class Fault:
    """``tests``: paths, or node ids of pytest, cheapest first. ``equivalent``: why no test can notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str
    table: str

    @property
    def digest(self) -> str:
        """Of what is planted."""
        return hashlib.sha256(repr((self.old, self.new)).encode()).hexdigest()[:16]


def read(folder: Path = TABLES) -> list[Fault]:
    """All faults, in the order of their tables. ValueError names an entry that lacks something."""
    found: list[Fault] = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        tests = table.get("tests", {})
        for row in table["fault"]:
            asked = row.get("tests") or tests.get(row["file"])
            if not asked:
                raise ValueError(f"{path.name}: {row['name']} names no tests, and [tests] none for {row['file']}")
            what = (row["name"], row["file"], row["old"], row["new"])
            found.append(Fault(*what, tuple(asked), row.get("equivalent", ""), path.name))
    return found


def why_not(fault: Fault, root: Path = ROOT) -> str | None:
    """Why the fault cannot be planted; None if it can."""
    path = root / fault.file
    if not path.is_file():
        return f"there is no file {fault.file}"
    text = path.read_text(encoding="utf-8")
    count = text.count(fault.old)
    if count != 1:
        return f"its text stands {count} times in {fault.file}"
    if fault.old == fault.new:
        return "it changes nothing"
    missing = [t for t in fault.tests if not _exists(root, t)]
    if missing:
        return f"there are no tests {', '.join(missing)}"
    if path.suffix == ".py":
        try:
            after = ast.dump(ast.parse(text.replace(fault.old, fault.new)))
        except SyntaxError as error:
            return f"it is no Python: {error}"
        if after == _code(text):
            return "it changes no code"
    return None


@cache
def _code(text: str) -> str:
    return ast.dump(ast.parse(text))


def _exists(root: Path, test: str) -> bool:
    """Whether there is a file, and in it the function that a node id names."""
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and (not name or f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8"))


def tracked(root: Path = ROOT) -> list[str]:
    """Files that git knows, links as links."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name]


def renamed(path: str, root: Path = ROOT) -> str | None:
    """Where a file that is gone is now, by git's renames, one after the other; None if git does not know."""
    seen = set[str]()
    while not (root / path).is_file():
        if path in seen:
            return None
        seen.add(path)
        gone = _git(root, "log", "-1", "--no-renames", "--diff-filter=D", "--format=%H", "--", path).strip()
        known = _git(root, "cat-file", "-e", f"HEAD:{path}", fails=True) is not None
        if not known and not gone:
            return None
        to = _renames(root, "HEAD" if known else gone, committed=not known).get(path)
        if to is None:
            return None
        path = to
    return path


@cache
def _renames(root: Path, commit: str, committed: bool) -> dict[str, str]:
    """The renames of a commit; or those since then, of files that were added or not."""
    between = [f"{commit}~1", commit] if committed else [commit]
    listed = _git(root, "diff", "-M30%", "-l0", "--diff-filter=R", "--name-status", "-z", *between).split("\0")
    return dict(zip(listed[1::3], listed[2::3]))


def _git(root: Path, *arguments: str, fails: bool = False) -> Any:
    """What git prints. ``fails``: None if it ends with an error, which is raised else."""
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=not fails)
    return ran.stdout.decode() if ran.returncode == 0 else None


def moved(faults: list[Fault], root: Path = ROOT) -> Iterator[tuple[Fault, str]]:
    """Faults whose file no longer has their text, and the only file that has it."""
    sources = [n for n in tracked(root) if n.endswith((".py", ".cu", ".cuh")) and not n.startswith("tests/")]
    texts = {n: (root / n).read_text(encoding="utf-8") for n in sources if (root / n).is_file()}
    for fault in faults:
        if texts.get(fault.file, "").count(fault.old) != 1:
            places = [n for n, text in texts.items() if text.count(fault.old) == 1]
            if len(places) == 1:
                yield fault, places[0]
