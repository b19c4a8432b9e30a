"""What a user sees: lines into a file, a bar on a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from training.fake_session import FakeSession

from dslc.runtime.config.load import load_config
from dslc.runtime.train.loop import train
from dslc.runtime.train.progress import Bar, Lines, epoch_lines, numbers, reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_and_lines() -> None:
    assert (
        numbers({"loss": 0.12345, "ppl": 123456789.0, "x": 1e-7, "n": 0.0})
        == "loss 0.1235  ppl 1.235e+08  x 1e-07  n 0.0000"
    )
    assert numbers({"loss": float("nan"), "a": float("inf")}) == "loss nan  a inf"
    lines = epoch_lines(3, 15, {"loss": 1.0}, {"loss": 2.0}, 12345.6, 1.25)
    assert lines == ["epoch 3/15  loss 1.0000  eval: loss 2.0000  12,346 samples/s  1.2 s"]
    lines = epoch_lines(3, 15, {"loss": 1.0}, {"loss": 2.0, "accuracy": 0.5}, 12345.6, 1.25)
    assert lines == [
        "epoch 3/15  loss 1.0000  eval: loss 2.0000  accuracy 0.5000",
        "            12,346 samples/s  1.2 s",
    ]


@pytest.mark.parametrize("count", range(12))
def test_an_epochs_lines_fit_into_80_columns(count: int) -> None:
    """Whatever the number of metrics, each is there once, in its order; only a longer name than a line is longer."""
    names = [f"metric_{'x' * (3 * n % 11)}{n}" for n in range(count)]
    values = {name: float(n) for n, name in enumerate(names)}
    lines = epoch_lines(100, 1000, values, values, 1e7, 12345.6)
    assert all(len(line) < 80 for line in lines)
    assert lines[0].startswith("epoch 100/1000") and all(line.startswith(" " * 16) for line in lines[1:])
    assert re.findall("metric_x*[0-9]+", "".join(lines)) == names * 2
    assert epoch_lines(1, 1, {"m" * 90: 1.0}, {}, 1.0, 1.0)[1].strip() == f"{'m' * 90} 1.0000"


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
