"""A process that answers a line of JSON with another. Needs no package."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any


class Failed(Exception):
    """Why a process cannot do what it was asked for."""


class Peer:
    """Its first line says that it is ready. It is started again if it ends."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, {**os.environ, **environment}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the process ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer; Failed if it says so, or if the process ended."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            found = self._answer()
        except (Failed, BrokenPipeError) as error:
            self._process.kill()
            self._process.communicate()
            self._start()
            raise Failed(str(error)) from error
        if "failed" in found:
            raise Failed(found["failed"])
        return found

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()
