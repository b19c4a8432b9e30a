"""The progress of a run: a bar on a terminal, else one plain line per epoch.

The only module that imports rich, and only if the output is a terminal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

from dslc.base.visible import fitting, one_line, visible

_BETWEEN = 0.1  # seconds between two updates of the bar
_WIDTH = 79  # of an epoch's lines; a terminal with 80 columns does not break them


def numbers(values: Mapping[str, float]) -> str:
    """``loss 0.1234  accuracy 0.9688``: four decimals, or the exponent form for very large and small numbers; integers
    unchanged."""
    return "  ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def epoch_lines(
    epoch: int, epochs: int, train: Mapping[str, float], evaluated: Mapping[str, float], rate: float, seconds: float
) -> list[str]:
    """One epoch, in lines of at most 79 characters; those after the first are indented. ``rate`` in samples/s."""
    head = f"epoch {epoch}/{epochs}"
    items = [numbers({name: value}) for name, value in train.items()]
    shown = [numbers({name: value}) for name, value in evaluated.items()]
    items += [f"eval: {shown[0]}", *shown[1:]] if shown else []
    items.append(f"{rate:,.0f} samples/s  {seconds:.1f} s")
    lines = [head]
    for item in items:
        if len(lines[-1]) + 2 + len(item) > _WIDTH and lines[-1].strip():
            lines.append(" " * len(head))
        lines[-1] += f"  {item}"
    return lines


class Pace:
    """How fast the steps of an epoch are, without evaluation and saving. ``batch``: samples of a step."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._steps = 0
        self.seconds = 0.0

    def add(self, steps: int, seconds: float) -> None:
        self._steps += steps
        self.seconds += seconds

    @property
    def rate(self) -> float:
        """Samples per second; 0 before the first step."""
        return self._steps * self._batch / self.seconds if self.seconds > 0 else 0.0


class Reporter(Protocol):
    """The interface through which the loop reports progress."""

    def start(self, total_steps: int, done: int, epochs: int) -> None: ...
    def step(self, done: int, epoch: int, values: Mapping[str, float], rate: float) -> None: ...
    def line(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def plot(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Lines:
    """Plain lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, total_steps: int, done: int, epochs: int) -> None:
        """Does nothing: lines are printed per epoch."""

    def step(self, done: int, epoch: int, values: Mapping[str, float], rate: float) -> None:
        """Does nothing: one line per epoch is enough for a file."""

    def line(self, text: str) -> None:
        print(fitting(one_line(text), self._stream), file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    def plot(self, text: str) -> None:
        """Does nothing: a file has no use for a text plot."""

    def stop(self) -> None:
        self._stream.flush()


class Bar:
    """A bar with epoch, loss, metrics, samples/s and the time left, with the lines of the run above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._stream = stream
        self._console = Console(file=stream, emoji=False)  # `:name:` must not become a picture either
        # Texts of the run contain paths and names, so they must never be parsed as markup.
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[values]}", markup=False),
            TextColumn("{task.fields[rate]} samples/s", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("train", total=None, start=False, epoch=0, epochs=0, values="", rate="-")
        self._drawn = 0.0
        self._hidden: tuple[int, int, Mapping[str, float], float] | None = None  # the newest step, if not drawn yet

    def start(self, total_steps: int, done: int, epochs: int) -> None:
        self._bar.update(self._task, total=total_steps, completed=done, epochs=epochs)
        self._bar.start_task(self._task)
        self._bar.start()

    def step(self, done: int, epoch: int, values: Mapping[str, float], rate: float) -> None:
        now = time.monotonic()
        self._hidden = done, epoch, values, rate
        if now - self._drawn >= _BETWEEN:
            self._drawn = now
            self._draw()

    def line(self, text: str) -> None:
        self._print(one_line(text))

    def warn(self, text: str) -> None:
        self._print(one_line(f"warning: {text}"), style="yellow")

    def plot(self, text: str) -> None:
        if text:
            self._print(visible(text))

    def _print(self, text: str, style: str | None = None) -> None:
        shown = fitting(text, self._stream)
        self._console.print(shown, style=style, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._draw()  # the last frame shows the last step, which may have come too soon after a drawn one
        self._bar.stop()

    def _draw(self) -> None:
        if self._hidden is None:
            return
        done, epoch, values, rate = self._hidden
        self._hidden = None
        self._bar.update(self._task, completed=done, epoch=epoch, values=one_line(numbers(values)), rate=f"{rate:,.0f}")


def reporter(stream: TextIO) -> Reporter:
    """A bar if the stream is a terminal that can draw it, else plain lines."""
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return Bar(stream)
    return Lines(stream)
