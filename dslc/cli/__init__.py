"""The command line. This module imports nothing heavy: each command's module is imported when it is called."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from dslc.base.errors import EXIT_SIGINT, EXIT_SIGTERM, exit_code


def main() -> NoReturn:
    """Entry point of ``dslc`` and ``python -m dslc``."""
    import gc

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        from dslc.cli.app import run

        code = run()
        gc.freeze()  # else the interpreter searches all objects for cycles at exit: a tenth of `dslc mem`
    except KeyboardInterrupt:  # before the start or at the very end: no traceback there either
        code = EXIT_SIGINT
    except (OSError, MemoryError, ImportError) as error:
        code = _not_loaded(error)
    raise SystemExit(code)


def _not_loaded(error: Exception) -> int:
    """Reports that the modules that report errors could not be loaded; uses only modules that are already imported."""
    code = "R401" if isinstance(error, MemoryError) else "R209"
    cause = str(error).split("\n")[0][:200] or type(error).__name__
    text = f"error[{code}]: dslc cannot be loaded: {cause}\n  = help: `ulimit -a` shows the limits of the process\n"
    with suppress(OSError):  # without a stderr, the exit code reports it
        os.write(2, text.encode(errors="backslashreplace"))
    return exit_code(code)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Releases locks and removes unfinished files, as an interrupt does; a second signal ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(EXIT_SIGTERM)
