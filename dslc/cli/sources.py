"""Values of the configuration as the command line would say them."""

from __future__ import annotations


def as_argument(value: object) -> str:
    """A plain value of the configuration as the text of ``-D``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
