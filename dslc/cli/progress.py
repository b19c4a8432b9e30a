"""A line on the terminal that says what is being compiled; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dslc.cli.output import settings

_WIDTH: Final = 60


@contextmanager
def build_progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Gives ``progress(what, done, total)``, or None; the line is gone at the end."""
    stream = sys.stderr
    if settings().json or not stream.isatty():
        yield None
        return

    def show(what: str, done: int, total: int) -> None:
        stream.write(f"\r{f'building {done}/{total}  {what}'[:_WIDTH].ljust(_WIDTH)}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(f"\r{' ' * _WIDTH}\r")
        stream.flush()
