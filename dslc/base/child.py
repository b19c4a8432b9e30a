"""A child process that reads lines from stdin, answers on stdout, and ends when its stdin is closed.

Sending never waits: the pipe takes what it has room for, and the rest follows while the answer is waited for. So a
child that is stopped, or that does not read, cannot stop its parent.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from dslc.base.ended import Mourner

_CHUNK: Final = 1 << 16  # bytes of one read


class Child:
    """``start`` it after the object is where ``end`` finds it: an interrupt at any point then leaves no process."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._unsent = bytearray()
        self._mourner: Mourner | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        return self._started[-1]

    @property
    def mourner(self) -> Mourner:
        """Tells how that process ended."""
        assert self._mourner is not None
        return self._mourner

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
        quiet: bool = False,
    ) -> None:
        """Start the process; one that was started before must have ended. ``quiet``: its stderr is kept for the mourner
        and not forwarded. OSError if none can be started."""
        self._unsent.clear()
        self._mourner = None
        # Ctrl-C reaches only this process, which closes stdin when it is done.
        popen = partial(
            subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0, env=env, cwd=cwd, pass_fds=pass_fds, process_group=0,
        )  # fmt: skip
        # one step, as dslc.base.turns explains
        self._started.extend(map(popen, (command,)))  # type: ignore[arg-type]  # partial takes the first overload
        os.set_blocking(self._stdin(), False)
        self._mourner = Mourner(self.process, quiet)
        self._mourner.start()

    def fileno(self) -> int:
        """The pipe of the answers."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def _stdin(self) -> int:
        assert self.process.stdin is not None
        return self.process.stdin.fileno()

    def send(self, line: str) -> None:
        """Send a line, now or later."""
        self._unsent += line.encode() + b"\n"
        self.push()

    def push(self) -> None:
        """Send what the pipe has room for."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin(), self._unsent[:_CHUNK])]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the process died: ``receive`` detects that
            self._unsent.clear()

    def awaited(self) -> dict[int, int]:
        """The pipes to wait for, and the event of each: an answer, or room for what is unsent."""
        pipes = {self.fileno(): select.POLLIN}
        if self._unsent:
            pipes[self._stdin()] = select.POLLOUT
        return pipes

    def receive(self) -> bytes:
        """The available part of the answers; empty if the process has closed its stdout or ended."""
        return os.read(self.fileno(), _CHUNK)

    def close_pipes(self) -> None:
        """Ask the process to end. May be repeated."""
        for process in self._started[-1:]:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def end(self, patience: float) -> None:
        """End the process, with SIGKILL after ``patience`` seconds. May be repeated."""
        self.close_pipes()
        for process in self._started[-1:]:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if self._mourner is not None:
                self._mourner.join()
            elif process.stderr is not None:
                process.stderr.close()


C = TypeVar("C", bound=Child)


def answering(children: Collection[C], seconds: float) -> list[C]:
    """The children that have something to ``receive``, after waiting up to ``seconds`` for one; sends what is unsent
    meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        by_pipe = {}
        poll = select.poll()  # select.select knows only the descriptors below 1024
        for child in children:
            for pipe, event in child.awaited().items():
                by_pipe[pipe] = child
                poll.register(pipe, event)
        found = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        ready = [by_pipe[pipe] for pipe, _ in found if by_pipe[pipe].fileno() == pipe]
        for child in by_pipe.values():
            child.push()
        if ready or not found:
            return ready
