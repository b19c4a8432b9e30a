"""Model files named on the command line: ``FILE.nn``, ``FILE.nn:Model``."""

from __future__ import annotations

from pathlib import Path


def split_model(text: str) -> tuple[str, str | None]:
    """Path and model of ``FILE:Model``; a file whose name has a colon is meant where it exists."""
    path, colon, model = text.rpartition(":")
    return (path, model) if colon and not Path(text).exists() else (text, None)


def as_argument(value: object) -> str:
    """A plain value of the configuration as the text of ``-D``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
