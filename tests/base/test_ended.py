"""How a child process ended is told as it was, whatever the moment at which somebody asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dslc.base import ended as module
from dslc.base.ended import Mourner, ended, last_words


def mourner(code: str) -> Mourner:
    command = [sys.executable, "-c", "import faulthandler, os, signal, sys, time; faulthandler.enable(); " + code]
    found = Mourner(subprocess.Popen(command, stderr=subprocess.PIPE))
    found.start()
    return found


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("os._exit(3)", "exit code 3"),
        ("print('no', file=sys.stderr); raise ValueError('of this')", "exit code 1: ValueError: of this"),
        ("sys.stderr.write('a\\nb\\n\\n'); sys.exit(0)", "exit code 0: b"),
        ("os.write(2, b'a warning'); os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os.kill(os.getpid(), 40)", "killed by signal 40"),
        ("os.abort()", "killed by SIGABRT: Fatal Python error: Aborted"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV: Fatal Python error: Segmentation fault"),
        ("os.close(1); time.sleep(0.2); os.write(2, b'late'); os._exit(9)", "exit code 9: late"),
    ],
)
def test_its_own_cause(code: str, cause: str, capfd: pytest.CaptureFixture[str]) -> None:
    one = mourner(code)
    assert one.cause() == cause and not one.for_memory
    said = capfd.readouterr().err
    assert cause.partition(": ")[2] in said, "what it wrote goes on to our stderr"


def test_memory_that_ran_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 4, 4])
    monkeypatch.setattr(module, "_kills_for_memory", lambda: next(counts))
    one = mourner("os.kill(os.getpid(), signal.SIGKILL)")
    assert one.cause() == "killed by SIGKILL, and the system has killed a process for lack of memory since it began"
    assert one.for_memory


def test_one_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.3)
    one = mourner("time.sleep(60)")
    assert one.cause() == "it closed its pipes and did not end within 0.3 s"
    assert one._process.returncode is not None


def test_words() -> None:
    assert [ended(0), ended(70), ended(-15), ended(-63)] == [
        "exit code 0", "exit code 70", "killed by SIGTERM", "killed by signal 63",
    ]  # fmt: skip
    assert last_words("") == "" and last_words("x" * 300) == "x" * 200
    assert last_words("allocation of 9 bytes failed\nnote: run with `A=1`\n") == "allocation of 9 bytes failed"
    two = "memory allocation of 9 bytes failed\nskipping backtrace printing to avoid potential recursion\n"
    assert last_words(two) == "memory allocation of 9 bytes failed"
    assert last_words("Fatal Python error: Bus error\n  File a.py, line 1\nExtension modules: numpy") == (
        "Fatal Python error: Bus error"
    )


def test_this_system_counts_what_it_kills_for_memory() -> None:
    """Of the machines that this runs on; where the file is missing nothing is claimed."""
    text = Path("/proc/vmstat")
    assert module._kills_for_memory() >= 0 and (not text.exists() or "oom_kill" in text.read_text())
