"""``output.txt`` in the folder of a trial's run: the lines of the training, its warnings, the traceback of a bug."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from dslc.base.opened import Opened

OUTPUT: Final = "output.txt"
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def output_of(folder: Path) -> Iterator[TextIO]:
    """The file, to which text is added; warnings go there, too. OSError."""
    with Opened() as scope, scope as files:
        handle = files.open(folder / OUTPUT, _FLAGS, 0o666)
        with open(handle, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as console:

            def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
                print(f"warning: {message}", file=console, flush=True)

            with warnings.catch_warnings():
                warnings.showwarning = show
                yield console


def add_output(folder: Path, text: str) -> None:
    """Add the last words of a process that died, if the folder and the file can be written."""
    if text:
        with suppress(OSError), output_of(folder) as console:
            console.write(text)
