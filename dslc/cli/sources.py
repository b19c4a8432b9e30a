"""Writes configuration values as arguments of the command line."""

from __future__ import annotations


def as_argument(value: object) -> str:
    """A plain configuration value as the text of ``-D``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
