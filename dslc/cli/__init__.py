"""The command line. This module imports nothing heavy: each command's module is imported when it is called."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of ``dslc`` and ``python -m dslc``."""
    import gc

    from dslc.base.errors import EXIT_SIGINT
    from dslc.cli import surroundings

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        from dslc.cli.app import run

        code = run()
        gc.freeze()  # else the interpreter looks for cycles in all that there is before it ends, a tenth of `dslc mem`
    except KeyboardInterrupt:  # before it has begun, or at its very end: no traceback for that either
        code = EXIT_SIGINT
    except (OSError, MemoryError, ImportError) as error:  # not even the frame could be loaded, or end
        refused = surroundings.fault(error)
        assert refused is not None, "each of these has a code"
        os.write(2, f"{refused.render()}\n".encode(errors="backslashreplace"))
        code = refused.exit_code
    raise SystemExit(code)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Gives locks and unfinished files back, as an interrupt does; a second signal ends the process at once."""
    from dslc.base.errors import EXIT_SIGTERM

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(EXIT_SIGTERM)
