"""The command line. This module imports nothing heavy: each command's module is imported when it is called."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Entry point of ``dslc`` and ``python -m dslc``."""
    import gc

    from dslc.base.errors import EXIT_SIGINT

    try:
        from dslc.cli.app import run

        code = run()
        gc.freeze()  # else the interpreter looks for cycles in all that there is before it ends, a tenth of `dslc mem`
    except KeyboardInterrupt:  # before it has begun, or at its very end: no traceback for that either
        code = EXIT_SIGINT
    raise SystemExit(code)
