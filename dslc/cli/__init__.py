"""The command line. This module imports nothing heavy: each command's module is imported when it is called."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

from dslc.base.errors import EXIT_SIGINT, EXIT_SIGTERM, exit_code

#: New objects after which the interpreter searches for cycles. Modules, syntax trees and graphs are many objects that
#: stay: with Python's 700, a tenth of `dslc check` is the search.
_OBJECTS: Final = 50_000


def main() -> NoReturn:
    """Entry point of ``dslc`` and ``python -m dslc``."""
    try:
        code = _run()
    except KeyboardInterrupt:  # before the start or at the very end: no traceback there either
        code = EXIT_SIGINT
    except RuntimeError as error:
        signalled = code_of_signal(error)
        if signalled is None:
            raise
        code = signalled
    raise SystemExit(code)


def code_of_signal(error: BaseException) -> int | None:
    """The exit code of the signal that caused ``error``, or None if no signal did.

    Python 3.11 replaces each exception that comes while a class names its attributes (``__set_name__``) by a
    RuntimeError, an interrupt too; imports make many classes.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return EXIT_SIGINT
        if isinstance(cause, SystemExit) and cause.code == EXIT_SIGTERM:
            return EXIT_SIGTERM
        cause = cause.__cause__
    return None


def _run() -> int:
    import gc

    gc.set_threshold(_OBJECTS)
    for number, (default, handler) in _HANDLERS.items():
        if signal.getsignal(number) is default:  # else it is ignored: `nohup`
            signal.signal(number, handler)
    try:
        from dslc.cli.app import run

        code = run()
        gc.freeze()  # else the interpreter searches all objects for cycles at exit: a tenth of `dslc mem`
    except (OSError, MemoryError, ImportError) as error:
        code = _not_loaded(error)
    for number in _HANDLERS:  # the work is done and said: the interpreter's end shows a traceback of an interrupt
        signal.signal(number, signal.SIG_IGN)
    return code


def _not_loaded(error: Exception) -> int:
    """Reports that the modules that report errors could not be loaded; uses only modules that are already imported."""
    code = "R401" if isinstance(error, MemoryError) else "R209"
    cause = str(error).split("\n")[0][:200] or type(error).__name__
    text = f"error[{code}]: dslc cannot be loaded: {cause}\n  = help: `ulimit -a` shows the limits of the process\n"
    with suppress(OSError):  # without a stderr, the exit code reports it
        os.write(2, text.encode(errors="backslashreplace"))
    return exit_code(code)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """As Python does; a second signal ends the process at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Releases locks and removes unfinished files, as an interrupt does; a second signal ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(EXIT_SIGTERM)


_HANDLERS: Final[dict[signal.Signals, tuple[Any, Any]]] = {
    signal.SIGTERM: (signal.SIG_DFL, _terminated),
    signal.SIGINT: (signal.default_int_handler, _interrupted),
}
