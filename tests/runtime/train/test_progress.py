"""What a user sees: lines into a file, a bar on a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from training.fake_session import FakeSession

from dslc.runtime.config.config import load_config
from dslc.runtime.train.loop import train
from dslc.runtime.train.progress import Bar, Lines, epoch_line, numbers, reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_and_lines() -> None:
    assert (
        numbers({"loss": 0.12345, "ppl": 123456789.0, "x": 1e-7, "n": 0.0})
        == "loss 0.1235  ppl 1.235e+08  x 1e-07  n 0.0000"
    )
    assert numbers({"loss": float("nan"), "a": float("inf")}) == "loss nan  a inf"
    line = epoch_line(3, 15, {"loss": 1.0}, {"loss": 2.0, "accuracy": 0.5}, 12345.6, 1.25)
    assert line == "epoch 3/15  loss 1.0000  eval: loss 2.0000  accuracy 0.5000  12,346 samples/s  1.2 s"


def test_a_pipe_gets_lines_a_terminal_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(reporter(io.StringIO()), Lines) and isinstance(reporter(Terminal()), Bar)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(reporter(Terminal()), Lines)


def test_the_bar_shows_loss_rate_and_time_left(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("dslc.runtime.train.progress._BETWEEN", 0.0)
    terminal = Terminal()
    config = load_config(project / "dslc.yaml", {"save.dir": str(project / "runs" / "[red]x[")})
    result = train(config, FakeSession(3), project / "build", console=terminal)
    text = terminal.getvalue()
    assert result.exit_code == 0
    for part in ("epoch 4/4", "loss ", "accuracy ", "samples/s", "%", "eval:"):
        assert part in text, part
    again = Terminal()
    train(config, FakeSession(3), project / "build", console=again)
    assert "[red]x[" in again.getvalue(), "a path is never markup"


def test_the_last_frame_shows_the_last_step(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("dslc.runtime.train.progress._BETWEEN", float("inf"))  # every step comes too soon
    terminal = Terminal()
    train(load_config(project / "dslc.yaml"), FakeSession(3), project / "build", console=terminal)
    assert re.search(r"epoch 4/4 [^\r\n]*100%[^\r\n]*accuracy", terminal.getvalue())


def test_plain_lines_import_no_rich() -> None:
    code = (
        "import sys, io; from dslc.runtime.train.progress import reporter; import dslc.runtime.train.loop;"
        "reporter(io.StringIO()).line('x'); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
