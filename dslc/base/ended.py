"""Reports how a child process ended: by its last message, a signal, or a kill because the machine ran out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

_KEPT: Final = 8192  # last bytes of its stderr that are kept
_SHOWN: Final = 200  # characters of the line that is reported
_FOR_MEMORY: Final = ", and the system has killed a process for lack of memory since it began"
#: Beginnings of lines that Rust writes after the cause; the second where two threads run out of memory at once.
_OF_BACKTRACES: Final = ("note: ", "skipping backtrace")
_PATIENCE: Final = 5.0  # seconds that a process has to end after it closed its pipes


class Mourner:
    """Reports how one child ended. Forwards the child's stderr (a pipe) to this process's stderr at once, unless
    ``quiet``, and keeps the last part of it, from ``start`` on."""

    def __init__(self, process: subprocess.Popen[bytes], quiet: bool = False) -> None:
        assert process.stderr is not None
        self._pipe = process.stderr
        self._process = process
        self._kills = _kills_for_memory()
        self._said = b""
        self._quiet = quiet
        self._reader = threading.Thread(target=self._pass_on, args=(self._pipe,), daemon=True)

    def start(self) -> None:
        self._reader.start()

    def _pass_on(self, pipe: IO[bytes]) -> None:
        with pipe:
            while part := os.read(pipe.fileno(), 1 << 16):
                self._said = (self._said + part)[-_KEPT:]
                if self._quiet:
                    continue
                with suppress(OSError):  # this process has no reader either
                    os.write(2, part)

    @property
    def said(self) -> str:
        """The last part of the child's stderr."""
        return self._said.decode(errors="replace")

    def cause(self) -> str:
        """How the child ended. It must have closed its pipes or be dead: waits for it, and kills it if it does not
        end."""
        try:
            code = self._process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"it closed its pipes and did not end within {_PATIENCE:g} s"
        self.join()
        how = ended(code)
        if code == -signal.SIGKILL:  # sent by another process: the child's own message is unrelated
            return how + (_FOR_MEMORY if self.for_memory else "")
        said = last_words(self.said)
        return f"{how}: {said}" if said else how

    @property
    def for_memory(self) -> bool:
        """True if the child got SIGKILL and the system's count of out-of-memory kills has risen since it began."""
        return self._process.returncode == -signal.SIGKILL and _kills_for_memory() > self._kills

    def kill(self) -> None:
        """Kill the child and wait for its end."""
        self._process.kill()
        self._process.wait()
        self.join()

    def join(self) -> None:
        """Wait until the stderr of a child that has ended is forwarded."""
        if self._reader.ident is None:  # an interrupt came before it was started
            self._pipe.close()
            return
        self._reader.join(timeout=_PATIENCE)  # a grandchild may hold the pipe open


def ended(code: int) -> str:
    """A return code in words: a negative code is the number of a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"


def last_words(said: str) -> str:
    """The line of a process's stderr that explains its end: the first fatal Python error, else the last line; what Rust
    says of backtraces explains nothing."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(_OF_BACKTRACES)]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or lines or [""])[-1][:_SHOWN]


def _kills_for_memory() -> int:
    """How many processes this system has killed for lack of memory; 0 if it does not report the count."""
    with suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
