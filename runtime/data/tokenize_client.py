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

from dslc.base.child import Child, answering
from dslc.base.confine import bare_environment
from dslc.base.errors import DataError, EnvironmentFault, ResourceError
from dslc.base.opened import Opened
from dslc.base.turns import Turn
from dslc.runtime.data.texts import TextRefused

HELP: Final = "save it again with `Tokenizer.save(FILE)` of Hugging Face's tokenizers"
_PATIENCE: Final = 60.0  # seconds without an answer
_MOST_THREADS: Final = 16  # of the library; each reserves address space, which is limited


class Client(Child):
    """``described``: what the process said about the file: ``version`` of the library, ``padding``, ``largest`` id.

    A process that dies or hangs is not started again: its file would do the same to the next one.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        """``data``: the content of the file. Raises DataError R101 for what is no tokenizer, EnvironmentFault R205
        without the library, ResourceError R401 if no process can be started."""
        super().__init__()
        require_library()
        self._path, self._data = path, data
        self._turn = Turn()  # several threads may read texts
        self._asked = False  # an answer is being read; still true at the next call after an interrupt
        self._dead: str | None = None  # why the process has ended, unasked
        self._rest = bytearray()
        self._owner = 0
        with self._turn.hold() as scope, scope:
            self.described: dict[str, Any] = self._begin()

    def _begin(self) -> dict[str, Any]:
        """Start the process; returns what it says about the file."""
        self._owner = os.getpid()
        self._rest.clear()
        threads = os.environ.get("RAYON_NUM_THREADS") or str(min(len(os.sched_getaffinity(0)), _MOST_THREADS))
        parallel = os.environ.get("TOKENIZERS_PARALLELISM", "true")
        environment = bare_environment(RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM=parallel)
        try:
            with Opened() as scope, scope as files:
                handle = files.memory("dslc-tokenizer", len(self._data))
                os.pwrite(handle, self._data, 0)
                command = [sys.executable, "-P", "-m", "dslc.runtime.data.tokenize_process", str(handle)]
                self.start(command, env=environment, pass_fds=[handle], quiet=True)
        except OSError as error:
            cause = f"no process for the tokenizer: {error}"
            raise ResourceError("R401", cause, place=str(self._path), help="free some memory") from error
        head = self._head()
        if "refused" in head:
            self.end(0.05)
            refuse(self._path, f"it is not a tokenizer: {head['refused']}")
        return head

    def encode(self, texts: Sequence[str], length: int | None) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
        """The number of ids of each text, and the ids of all: with special tokens and at most ``length`` of a text, or
        those of the texts alone. Raises TextRefused, and DataError R101 if the process has ended or hangs."""
        with self._turn.hold() as scope, scope:
            if self._dead is not None:
                refuse(self._path, self._dead)
            if self._owner != os.getpid():  # a fork: the process answers the parent
                self.close_pipes()
                self._begin()
            elif self._asked:
                self.end(0.05)
                self._begin()
            self._asked = True
            line = json.dumps({"texts": texts, "length": length}, ensure_ascii=False)
            self.send(line.encode("utf-8", "replace").decode("utf-8"))  # UTF-8 has no lone surrogates
            head = self._head()
            if "refused" in head:
                self._asked = False
                raise TextRefused("R101", f"the tokenizer refuses: {head['refused']}", place=str(self._path), help=HELP)
            counts = np.frombuffer(self._take(4 * head["texts"]), np.int32)
            ids = np.frombuffer(self._take(4 * head["ids"]), np.uint32)
            self._asked = False
            return counts, ids

    def _head(self) -> dict[str, Any]:
        while (end := self._rest.find(b"\n")) < 0:
            self._more()
        found: dict[str, Any] = json.loads(self._take(end + 1))
        return found

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            self._more()
        found = bytes(self._rest[:count])
        del self._rest[:count]
        return found

    def _more(self) -> None:
        if not answering([self], _PATIENCE):
            self.end(0.05)
            self._died(f"the tokenizer gave no answer for {_PATIENCE:g} s")
        part = self.receive()
        if not part:
            self.close_pipes()
            self._died(f"the process that runs the tokenizer has ended, {self.mourner.cause()}")
        self._rest += part

    def _died(self, why: str) -> NoReturn:
        self._dead = why
        refuse(self._path, why)


def refuse(path: Path, why: str) -> NoReturn:
    """Raise DataError R101 about a tokenizer file."""
    raise DataError("R101", why, place=str(path), help=HELP)


def require_library() -> None:
    """Raises EnvironmentFault R205 if tokenizers is not installed."""
    from importlib.util import find_spec

    if find_spec("tokenizers") is None:
        help = "pip install 'dslc[text]'"
        raise EnvironmentFault("R205", "text needs tokenizers", place="data.tokenizer", help=help)
