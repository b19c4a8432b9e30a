"""A process that answers a command with a line of JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_SHOWN = 300  # characters of an error
#: The line of an exception, after which its text may go on.
_RAISED = re.compile(r"error\b|[\w.]*(?:Error|Exception)\b")


class Failed(Exception):
    """A process ended before it answered."""


class Peer:
    """Starts ``command``; what it says on stderr goes to the file ``log``. The last exception there, or the last line,
    is the text of an error."""

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [str(part) for part in command], env={**os.environ, **environment}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=file, text=True,
            )  # fmt: skip

    def answer(self) -> Any:
        """The next answer. Raises Failed if the process ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            first = next((i for i in reversed(range(len(lines))) if _RAISED.match(lines[i])), -1)
            said = " ".join(lines[first:])
            raise Failed(f"a process ended with code {self.process.wait()}: {said[:_SHOWN]}")
        return json.loads(line)

    def ask(self, *command: object) -> Any:
        """The answer to a command. Raises Failed."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says why
            print(*command, file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        """Ends the process; it has nothing to save."""
        self.process.kill()
        self.process.communicate()
