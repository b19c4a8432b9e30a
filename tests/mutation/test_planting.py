"""The tables of planted faults are kept up: each can still be planted, and the tests that it names exist."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import faults
import pytest
import run

FAULTS = faults.read()


@pytest.mark.parametrize("table", sorted({f.table for f in FAULTS}))
def test_every_fault_can_be_planted(table: str) -> None:
    wrong = {f.name: faults.why_not(f) for f in FAULTS if f.table == table}
    assert {name: why for name, why in wrong.items() if why} == {}


def test_names_stand_once_and_there_are_enough() -> None:
    assert [n for n, count in Counter(f.name for f in FAULTS).items() if count > 1] == []
    assert len(FAULTS) >= 200
    assert sum(bool(f.equivalent) for f in FAULTS) <= len(FAULTS) // 20


def test_a_fault_that_cannot_be_planted_is_told() -> None:
    good = next(f for f in FAULTS if f.file.endswith(".py"))
    for changed, said in (
        ({"file": "runtime/gone.py"}, "no file"),
        ({"old": "no such text at all"}, "0 times"),
        ({"old": "import"}, "times"),
        ({"new": good.old}, "changes nothing"),
        ({"new": good.old + "\n\n"}, "no"),
        ({"tests": ("tests/gone.py",)}, "no tests"),
        ({"new": "def (:"}, "no Python"),
    ):
        found = faults.why_not(replace(good, **changed))
        assert found is not None and said in found


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("test", "status"),
    [("assert 1", "survived"), ("assert 0", "killed"), ("import gone", "killed"), ("import os; os.abort()", "killed")],
)
def test_the_runner_tells_killed_from_survived(tmp_path: Path, test: str, status: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_it.py").write_text(f"def test_it():\n    {test}\n")
    found = run.tested(tree, ("test_it.py",))
    assert found["status"] == status
    if status == "killed" and "abort" not in test:
        assert found["by"] == "test_it.py::test_it"


@pytest.mark.slow
def test_the_runner_ends_a_loop_without_end(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_it.py").write_text("def test_it():\n    while True:\n        pass\n")
    assert run.tested(tree, ("test_it.py",), limit=3.0) | {"seconds": 0} == {
        "status": "killed", "by": "its time", "failed": [], "seconds": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_a_test_that_fails_without_the_fault_has_noticed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_it.py").write_text("def test_good():\n    pass\ndef test_bad():\n    assert 0\n")
    rows = [(name, {"name": name, "status": "killed", "by": f"test_it.py::test_{name}"}) for name in ("good", "bad")]
    run._confirm(tree, rows)
    assert {k: v["status"] for k, v in run._results().items()} == {"bad": "broken"}
    assert "bad: test_it.py::test_bad fails by itself" in capsys.readouterr().err


def test_tables_follow_files_that_were_moved(tmp_path: Path) -> None:
    """Moved in a commit, moved twice, moved without a commit, and changed by the move; a text alone, too."""
    root, tables = tmp_path / "tree", tmp_path / "tree" / "tables"

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)

    def move(old: str, new: str, change: str = "") -> None:
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / new).write_text(change + (root / old).read_text())
        (root / old).unlink()

    (tables).mkdir(parents=True)
    (root / "tests").mkdir()
    lines = {name: "".join(f"{name}_{i} = {i}\n" for i in range(20)) for name in "abcd"}
    for name, text in lines.items():
        (root / f"{name}.py").write_text(text)
        (root / f"tests/test_{name}.py").write_text(f"def test_{name}():\n    pass\n" + text)
    given = "".join(f'"{name}.py" = ["tests/test_{name}.py::test_{name}"]\n' for name in "abcd")
    rows = "".join(
        f'[[fault]]\nname = "{name}"\nfile = "{name}.py"\nold = "{name}_7 = 7"\nnew = "{name}_7 = 8"\n'
        for name in "abcd"
    )
    (tables / "t.toml").write_text(f"[tests]\n{given}\n{rows}")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    assert run.relocate(tables, root) == []
    move("a.py", "a/inner.py", "import b\n")
    move("b.py", "x/b.py")
    move("tests/test_a.py", "tests/a/test_inner.py")
    git("add", "-A")
    git("commit", "-qm", "moved")
    move("x/b.py", "y/b.py", "import a\n")
    git("add", "-A")
    git("commit", "-qm", "moved again")
    move("c.py", "c/c.py", "import c\n")
    move("tests/test_c.py", "tests/c/test_c.py")
    git("add", "-A")
    (root / "d.py").write_text(lines["d"].replace("d_7 = 7\n", ""))
    (root / "e.py").write_text("d_7 = 7\n")
    assert run.relocate(tables, root) == []
    found = {f.name: (f.file, f.tests) for f in faults.read(tables)}
    assert found == {
        "a": ("a/inner.py", ("tests/a/test_inner.py::test_a",)), "b": ("y/b.py", ("tests/test_b.py::test_b",)),
        "c": ("c/c.py", ("tests/c/test_c.py::test_c",)), "d": ("e.py", ("tests/test_d.py::test_d",)),
    }  # fmt: skip
    (root / "e.py").write_text("gone = 1\n")
    assert run.relocate(tables, root) == ["d: its text stands 0 times in e.py"]
