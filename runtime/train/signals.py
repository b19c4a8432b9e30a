"""SIGINT and SIGTERM in training: the first one asks the loop to finish its step and save, the second stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

from dslc.base.errors import EXIT_SIGINT, EXIT_SIGTERM

_EXIT: Final = {signal.SIGINT: EXIT_SIGINT, signal.SIGTERM: EXIT_SIGTERM}


class StopNow(KeyboardInterrupt):
    """Raised by the second signal, wherever the code is; nothing is saved. ``exit_code`` is that of the signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class StopRequest:
    """``with Always(stop.restore), stop: ...`` -- ``stop.exit_code`` is None until a signal arrives, then 130 or 143.

    The handler only sets this number; a second signal raises StopNow. Signals that were ignored before (``nohup``) stay
    ignored. Outside the main thread, in which Python cannot handle signals, nothing is installed.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        code = _EXIT[signal.Signals(number)]
        if self.exit_code is not None:
            raise StopNow(code)
        self.exit_code = code

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in _EXIT:
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN and before is not None:
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Put the handlers back. May be repeated."""
        for number, before in tuple(self._before.items()):
            signal.signal(number, before)
            self._before.pop(number, None)
