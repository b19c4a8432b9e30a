"""A process that runs a foreign library on one file of unknown origin, and lives across uses.

Such libraries are C++ or Rust: on a hostile file they may crash, loop or allocate too much, and then only their process
ends. Each request is a line of JSON; the answer is a line of JSON, then bytes whose number that line tells.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from typing import Any, Final, NoReturn

from dslc.base.child import Child, answering
from dslc.base.turns import Turn

_PATIENCE: Final = 60.0  # seconds without an answer


class LibraryProcess(Child):
    """A subclass says how the process is started and what is raised if it fails. A request holds ``turn``, calls
    ``ready``, sends a line, and takes the whole answer; then it calls ``answered``."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = Turn()  # several threads may use the file
        self._asked = False  # an answer is being read; still true at the next request after an interrupt
        self._rest = bytearray()
        self._owner = 0

    @abstractmethod
    def launch(self) -> None:
        """Start the process."""

    @abstractmethod
    def failed(self, why: str) -> NoReturn:
        """Raise an error about the file: the process has ended, or gives no answer. ``why``: a clause."""

    def begin(self) -> dict[str, Any]:
        """Start the process; returns the line with which it begins."""
        self._owner = os.getpid()
        self._rest.clear()
        self.launch()
        return self.head()

    def ready(self) -> None:
        """Start the process again if it answers the parent of a fork, or a request that an interrupt cut off."""
        if self._owner != os.getpid():
            self.close_pipes()
            self.begin()
        elif self._asked:
            self.end(0.05)
            self.begin()
        self._asked = True

    def answered(self) -> None:
        """The answer has been read."""
        self._asked = False

    def head(self) -> dict[str, Any]:
        """The next line of the answers."""
        while (end := self._rest.find(b"\n")) < 0:
            self._more()
        found: dict[str, Any] = json.loads(self.take(end + 1))
        return found

    def take(self, count: int) -> bytes:
        """The next bytes of the answers."""
        while len(self._rest) < count:
            self._more()
        found = bytes(self._rest[:count])
        del self._rest[:count]
        return found

    def _more(self) -> None:
        if not answering([self], _PATIENCE):
            self.end(0.05)
            self.failed(f"gave no answer for {_PATIENCE:g} s")
        part = self.receive()
        if not part:
            self.close_pipes()
            self.failed(f"has ended, {self.mourner.cause()}")
        self._rest += part
