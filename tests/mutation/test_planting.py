"""The tables of planted faults are kept up: each can still be planted, and the tests that it names exist."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import faults
import pytest
import run

FAULTS = faults.read()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_can_be_planted(fault: faults.Fault) -> None:
    assert faults.why_not(fault) is None


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


def test_the_runner_ends_a_loop_without_end(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_it.py").write_text("def test_it():\n    while True:\n        pass\n")
    assert run.tested(tree, ("test_it.py",), limit=3.0) | {"seconds": 0} == {
        "status": "killed", "by": "its time", "failed": [], "seconds": 0,
    }  # fmt: skip


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
