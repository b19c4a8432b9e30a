"""The hand-made artifact of line_model.py, loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from artifacts.line_model import MEANINGS, write_line

from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """A fresh ``line.dslc``."""
    return write_line(tmp_path)


@pytest.fixture
def open_line(line: Path) -> Iterator[Callable[..., Session]]:
    """``open_line(**options)``: the artifact with initial weights."""
    opened: list[Session] = []

    def make(**options: Any) -> Session:
        session = load(line, **({"weights": "init", "meanings": MEANINGS} | options))
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()
