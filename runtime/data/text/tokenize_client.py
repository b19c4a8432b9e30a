"""Asks the process that runs the ``tokenizers`` library on one file (``tokenize_process``), which lives across uses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.confine import bare_environment
from dslc.base.errors import DataError, EnvironmentFault, ResourceError
from dslc.base.opened import Opened
from dslc.runtime.data.library_process import LibraryProcess
from dslc.runtime.data.text.texts import TextRefused

HELP: Final = "save it again with `Tokenizer.save(FILE)` of Hugging Face's tokenizers"
_MOST_THREADS: Final = 16  # of the library; each reserves address space, which is limited


class Client(LibraryProcess):
    """``described``: what the process said about the file: ``version`` of the library, ``padding``, ``largest`` id.

    A process that dies or hangs is not started again: its file would do the same to the next one.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        """``data``: the content of the file. Raises DataError R101 for what is no tokenizer, EnvironmentFault R205
        without the library, ResourceError R401 if no process can be started."""
        super().__init__()
        require_library()
        self._path, self._data = path, data
        self._dead: str | None = None  # why the process has ended, unasked
        with self.turn.hold() as scope, scope:
            self.described: dict[str, Any] = self.begin()

    def launch(self) -> None:
        threads = os.environ.get("RAYON_NUM_THREADS") or str(min(len(os.sched_getaffinity(0)), _MOST_THREADS))
        parallel = os.environ.get("TOKENIZERS_PARALLELISM", "true")
        environment = bare_environment(RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM=parallel)
        try:
            with Opened() as scope, scope as files:
                handle = files.memory("dslc-tokenizer", len(self._data))
                os.pwrite(handle, self._data, 0)
                command = [sys.executable, "-P", "-m", "dslc.runtime.data.text.tokenize_process", str(handle)]
                self.start(command, env=environment, pass_fds=[handle], quiet=True)
        except OSError as error:
            cause = f"no process for the tokenizer: {error}"
            raise ResourceError("R401", cause, place=str(self._path), help="free some memory") from error

    def begin(self) -> dict[str, Any]:
        head = super().begin()
        if "refused" in head:
            self.end(0.05)
            refuse(self._path, f"it is not a tokenizer: {head['refused']}")
        return head

    def encode(self, texts: Sequence[str], length: int | None) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
        """The number of ids of each text, and the ids of all: with special tokens and at most ``length`` of a text, or
        those of the texts alone. Raises TextRefused, and DataError R101 if the process has ended or hangs."""
        with self.turn.hold() as scope, scope:
            if self._dead is not None:
                refuse(self._path, self._dead)
            self.ready()
            line = json.dumps({"texts": texts, "length": length}, ensure_ascii=False)
            self.send(line.encode("utf-8", "replace").decode("utf-8"))  # UTF-8 has no lone surrogates
            head = self.head()
            if "refused" in head:
                self.answered()
                raise TextRefused("R101", f"the tokenizer refuses: {head['refused']}", place=str(self._path), help=HELP)
            counts = np.frombuffer(self.take(4 * head["texts"]), np.int32)
            ids = np.frombuffer(self.take(4 * head["ids"]), np.uint32)
            self.answered()
            return counts, ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises TextRefused, and DataError R101 if the process has ended or hangs."""
        with self.turn.hold() as scope, scope:
            if self._dead is not None:
                refuse(self._path, self._dead)
            self.ready()
            self.send(json.dumps({"decode": [int(id) for id in ids]}))
            head = self.head()
            self.answered()
            if "refused" in head:
                raise TextRefused("R101", f"the tokenizer refuses: {head['refused']}", place=str(self._path), help=HELP)
            text: str = head["text"]
            return text

    def failed(self, why: str) -> NoReturn:
        self._dead = f"the process that runs the tokenizer {why}"
        refuse(self._path, self._dead)


def refuse(path: Path, why: str) -> NoReturn:
    """Raise DataError R101 about a tokenizer file."""
    raise DataError("R101", why, place=str(path), help=HELP)


def require_library() -> None:
    """Raises EnvironmentFault R205 if tokenizers is not installed."""
    from importlib.util import find_spec

    if find_spec("tokenizers") is None:
        help = "pip install 'dslc[text]'"
        raise EnvironmentFault("R205", "text needs tokenizers", place="data.tokenizer", help=help)
