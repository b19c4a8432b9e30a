"""The command line. This module imports nothing heavy: each command's module is imported when it is called."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Entry point of ``dslc`` and ``python -m dslc``."""
    from dslc.cli.app import run

    raise SystemExit(run())
