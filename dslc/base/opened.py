"""Open descriptors that an interrupt cannot leak: opening and recording are one step, as are closing and forgetting."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import TracebackType

from dslc.base.turns import unbroken


class Opened:
    """``with Opened() as scope, scope as files: fd = files.open(path, flags)``: closes all open descriptors at the end,
    in both scopes, as ``dslc.base.turns`` explains."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def open(self, path: str | os.PathLike[str], flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """``os.open``; other programs do not inherit the descriptor."""
        self._open.extend(map(partial(os.open, dir_fd=dir_fd), (path,), (flags | os.O_CLOEXEC,), (mode,)))
        return self._open[-1]

    def memory(self, name: str, size: int) -> int:
        """Anonymous memory of ``size`` bytes, as a file. OSError."""
        self._open.extend(map(os.memfd_create, (name,), (os.MFD_CLOEXEC,)))
        os.ftruncate(self._open[-1], size)
        return self._open[-1]

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._open))

    def __contains__(self, fd: object) -> bool:
        return fd in self._open

    def close(self, fd: int) -> None:
        """Close a descriptor; does nothing if it is closed."""
        if fd in self._open:
            unbroken((partial(self._open.remove, fd), partial(os.close, fd)))

    def close_all(self) -> None:
        deque(map(os.close, map(self._open.pop, (-1,) * len(self._open))), maxlen=0)

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_all()
