"""A line on the terminal that names what is being compiled or measured; silent if stderr is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dslc.base.visible import one_line
from dslc.cli.output import settings

_WIDTH: Final = 60
_WIDE: Final = 79
_BAR: Final = 30  # characters of the bar


def _bar(done: int, total: int) -> str:
    full = _BAR * done // max(1, total)
    return f"{'#' * full}{'-' * (_BAR - full)}"


@contextmanager
def build_progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yields ``progress(what, done, total)``, or None; the line is erased at the end."""
    stream = sys.stderr
    if settings().json or not stream.isatty():
        yield None
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
