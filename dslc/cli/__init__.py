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
        gc.freeze()  # else the interpreter looks for cycles in all that there is before it ends, a tenth of `dslc mem`
    except KeyboardInterrupt:  # before it has begun, or at its very end: no traceback for that either
        code = EXIT_SIGINT
    except (OSError, MemoryError, ImportError) as error:
        code = _not_loaded(error)
    raise SystemExit(code)


def _not_loaded(error: Exception) -> int:
    """Said where what says everything else could not be loaded itself, so with nothing but what is there."""
    code = "R401" if isinstance(error, MemoryError) else "R209"
    cause = str(error).split("\n")[0][:200] or type(error).__name__
    text = f"error[{code}]: dslc cannot be loaded: {cause}\n  = help: `ulimit -a` shows the limits of the process\n"
    with suppress(OSError):  # where there is no stderr, either, the exit code says it
        os.write(2, text.encode(errors="backslashreplace"))
    return exit_code(code)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Gives locks and unfinished files back, as an interrupt does; a second signal ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(EXIT_SIGTERM)
