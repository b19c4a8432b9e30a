"""How a child process ended: in its own words, by a signal, or because the machine ran out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO, Final

_KEPT: Final = 8192  # bytes of the end of what it said
_SHOWN: Final = 200  # characters of the line that counts
_FOR_MEMORY: Final = ", and the system has killed a process for lack of memory since it began"
_PATIENCE: Final = 5.0  # seconds that a process which gave up its pipes has for ending


class Mourner:
    """Knows how one child ends. The child's stderr is a pipe: all of it goes on to this process's stderr at once, and
    the end of it is kept."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._process = process
        self._kills = _kills_for_memory()
        self._said = b""
        self._reader = threading.Thread(target=self._pass_on, args=(process.stderr,), daemon=True)
        self._reader.start()

    def _pass_on(self, pipe: IO[bytes]) -> None:
        with pipe:
            while part := os.read(pipe.fileno(), 1 << 16):
                self._said = (self._said + part)[-_KEPT:]
                with suppress(OSError):  # nobody hears this process either
                    os.write(2, part)

    def cause(self) -> str:
        """How the child ended, which has closed its pipes or is dead: it is waited for, and killed if it stays."""
        try:
            code = self._process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"it closed its pipes and did not end within {_PATIENCE:g} s"
        self._reader.join(timeout=_PATIENCE)  # a child of the child may hold the pipe
        how = ended(code)
        if code == -signal.SIGKILL:  # which comes from outside: its own words are about something else
            return how + (_FOR_MEMORY if self.for_memory else "")
        said = last_words(self._said.decode(errors="replace"))
        return f"{how}: {said}" if said else how

    @property
    def for_memory(self) -> bool:
        """Whether the child was killed while the system killed for lack of memory."""
        return self._process.returncode == -signal.SIGKILL and _kills_for_memory() > self._kills

    def kill(self) -> None:
        """End the child at once."""
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=_PATIENCE)


def ended(code: int) -> str:
    """A return code in words: below 0 it is a signal's number."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"


def last_words(said: str) -> str:
    """The line of a process's stderr that tells why it ended: that of a fatal error of Python, else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or lines or [""])[-1][:_SHOWN]


def _kills_for_memory() -> int:
    """How often this system has killed a process for lack of memory; 0 where it does not say."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as lines:
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
