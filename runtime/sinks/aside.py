"""Keeps what sinks print apart from the results of a command."""

from __future__ import annotations

import sys
import threading
from typing import Any

from dslc.runtime.sinks.follower import THREAD


class Aside:
    """``sys.stdout`` while sinks are open: what their threads write goes to stderr, all else where it went before."""

    def __init__(self) -> None:
        self._stdout: Any = None

    def begin(self) -> None:
        self._stdout = sys.stdout
        sys.stdout = _ByThread(sys.stdout)

    def end(self) -> None:
        """May be repeated."""
        if self._stdout is not None and isinstance(sys.stdout, _ByThread):
            sys.stdout = self._stdout
        self._stdout = None


class _ByThread:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def _chosen(self) -> Any:
        return sys.stderr if threading.current_thread().name.startswith(THREAD) else self._stream

    def write(self, text: str) -> int:
        return int(self._chosen().write(text))

    def flush(self) -> None:
        self._chosen().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
