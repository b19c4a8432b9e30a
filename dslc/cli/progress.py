"""What is being compiled or measured, on stderr: one line that changes on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from dslc.base.visible import fitting, one_line
from dslc.cli.output import settings

if TYPE_CHECKING:
    from dslc.runtime.sweep.state import Entry

_WIDTH: Final = 60
_WIDE: Final = 79
_BAR: Final = 30  # characters of the bar
_SILENT: Final = 5.0  # seconds at most between two lines of a build whose output is no terminal


def _bar(done: int, total: int) -> str:
    full = _BAR * done // max(1, total)
    return f"{'#' * full}{'-' * (_BAR - full)}"


def _lines(stream: TextIO, clock: Callable[[], float]) -> Callable[[str, int, int], None]:
    """``progress(what, done, total)`` for a file or a pipe: a line, unless the last one is less than ``_SILENT``
    seconds old. A shorter build says nothing."""
    begun = told = clock()

    def show(what: str, done: int, total: int) -> None:
        nonlocal told
        now = clock()
        if now - told < _SILENT:
            return
        told = now
        what = "compiling kernels" if what == "kernels" else f"building {one_line(what)}"
        stream.write(f"{what} {done}/{total}, {now - begun:.0f} s\n")
        stream.flush()

    return show


@contextmanager
def build_progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yields ``progress(what, done, total)``, or None with --json; the line on a terminal is erased at the end.
    ``clock``: seconds."""
    stream = sys.stderr
    if settings().json:
        yield None
        return
    if not stream.isatty():
        yield _lines(stream, clock)
        return

    def show(what: str, done: int, total: int) -> None:
        what = one_line(what)
        text = f"building {done}/{total}  {what}"
        if what == "kernels":
            text = f"compiling kernels {done}/{total} ".ljust(28) + _bar(done, total)
        stream.write(f"\r{text[:_WIDTH].ljust(_WIDTH)}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(f"\r{' ' * _WIDTH}\r")
        stream.flush()


@contextmanager
def tune_progress(budget: float) -> Iterator[Callable[[str, int, int], None] | None]:
    """As ``build_progress``, for a tuning of ``budget`` seconds: a bar of its problems, and the seconds left."""
    stream = sys.stderr
    if settings().json or not stream.isatty():
        yield None
        return
    begun = time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        left = max(0.0, budget - (time.monotonic() - begun))
        text = f"tuning {_bar(done, total)} {done}/{total}, {left:.0f} s left  {one_line(what)}"
        stream.write(f"\r{text[:_WIDE].ljust(_WIDE)}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(f"\r{' ' * _WIDE}\r")
        stream.flush()


class SweepProgress:
    """What a sweep is doing, on stderr: a line for each trial that ends, and on a terminal a bar; silent with --json.

    ``shown``: an ended trial in words."""

    def __init__(self, shown: Callable[[Entry], str]) -> None:
        self._stream, self._shown = sys.stderr, shown
        self._silent = settings().json
        self._terminal = not self._silent and self._stream.isatty()

    def line(self, text: str) -> None:
        if not self._silent:
            self.clear()
            self._stream.write(f"{fitting(one_line(text), self._stream)}\n")
            self._stream.flush()

    def ended(self, entry: Entry, done: int, total: int) -> None:
        self.line(f"{done}/{total}  {self._shown(entry)}")

    def progress(self, done: float, running: int, total: int) -> None:
        if self._terminal:
            percent = int(100 * done / max(1, total))
            text = f"sweep {_bar(percent, 100)} {percent} %, {int(done)} of {total} trials done, {running} running"
            self._stream.write(f"\r{text[:_WIDE].ljust(_WIDE)}")
            self._stream.flush()

    def clear(self) -> None:
        """Erase the bar. May be repeated."""
        if self._terminal:
            self._stream.write(f"\r{' ' * _WIDE}\r")
            self._stream.flush()
