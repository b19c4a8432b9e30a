"""The environment of a command: standard streams, working folder, limits. Turns their faults into errors with a code.

Imports only Python's own modules, so that it works when nothing else can be loaded.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

from dslc.base.errors import DslcError, EnvironmentFault, OutOfMemory, ResourceError
from dslc.base.version import COMPILER
from dslc.cli.room import LEAST, bytes_left

_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
#: Messages of the dynamic linker for a library that does not fit into memory: it gives no error number.
_NO_ROOM: Final = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
_LIMITS: Final = "free memory, raise the limits of the process (`ulimit -a`), or use a smaller --size"


def prepare_streams() -> None:
    """Opens each closed descriptor among 0, 1 and 2, so that no other file gets its number, and lets stdout print any
    text.

    Reading from a closed stdin and writing to a closed stdout still fail; output to a closed stderr is dropped.
    """
    for number, name, mode, flags in (
        (0, "stdin", "r", os.O_WRONLY),
        (1, "stdout", "w", os.O_RDONLY),
        (2, "stderr", "w", os.O_WRONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            # It stays open as long as the process lives.
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115
    if type(sys.stdout) is TextIOWrapper and sys.stdout.fileno() == 1 and _output() is None:
        old = sys.stdout
        old.flush()
        sys.stdout = TextIOWrapper(
            BufferedWriter(_Output(1, "w", closefd=False)),
            encoding=old.encoding,
            errors="backslashreplace",  # a file name need not be valid text
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def _output() -> _Output | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Output) else None


class _Output(FileIO):
    """stdout. ``lost``: the error of a failed write."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = error
            raise


def silence() -> None:
    """Discards buffered and later output; else the interpreter's last flush would fail a second time."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def fault(error: BaseException) -> DslcError | None:
    """The coded error for a refusal by the system; None if the exception does not stem from one.

    R401 if memory is the cause, R402 if a file or the output cannot be written, R209 for all else.
    """
    chain = list(_chain(error))
    if any(_is_of_memory(link) for link in chain):
        return OutOfMemory("R401", "this process has reached its memory limit", help=_LIMITS)
    for link in chain:
        if isinstance(link, OSError):
            return _refused(link)
        if isinstance(link, RuntimeError) and "can't start new thread" in str(link):
            return EnvironmentFault("R209", "the system refuses to start another thread", help=_LIMITS)
    if isinstance(error, ImportError):
        if isinstance(error, ModuleNotFoundError) and error.name in COMPILER:
            return EnvironmentFault("R205", "this needs the compiler", help="pip install dslc")
        cause = f"a package cannot be loaded: {_first_line(error)}"
        return EnvironmentFault("R209", cause, help="`dslc doctor` shows what is installed; install dslc again")
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then its cause, and so on."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, SystemError):  # raised by the interpreter if it has no memory for an exception
        left = bytes_left()
        return left is not None and left < LEAST
    return isinstance(error, ImportError | OSError) and any(words in str(error).lower() for words in _NO_ROOM)


def _refused(error: OSError) -> DslcError:
    why = (error.strerror or _first_line(error)).lower()
    output = _output()
    if output is not None and error is output.lost:
        cause = f"the output of the command cannot be written: {why}"
        return ResourceError("R402", cause, place="stdout", help="free some space, or redirect the output")
    try:
        os.getcwd()
    except OSError:
        cause = "the working folder is gone, or cannot be read"
        return EnvironmentFault("R209", cause, help="change to an existing folder")
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    if error.errno in _NOT_WRITTEN:
        return ResourceError(
            "R402", f"a file cannot be written: {why}", place=place, help="free some space, or raise `ulimit -f`"
        )
    return EnvironmentFault("R209", f"the system refuses: {why}", place=place, help=f"check the path; {_LIMITS}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
