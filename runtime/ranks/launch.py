"""Starts the processes of one host by the launch contract, and ends them together."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from dslc.base.errors import EXIT_OK, EXIT_RANKS, RanksError
from dslc.base.visible import one_line
from dslc.runtime.ranks.contract import SECRET
from dslc.runtime.ranks.watch import FINISH

PARENT: Final = "DSLC_RANKS_PARENT"  # the process id of the launcher
_EVERY: Final = 0.05  # seconds between looks at the processes
_AFTER: Final = 3.0  # seconds in which a process ends that has nothing left to do
_BARELY_STARTED: Final = 1  # the exit code of Python that Ctrl-C interrupts while it imports
_MOST_SAID: Final = 4000  # bytes of a process's messages that are shown
#: signals that kill, and who sends them
_KILLERS: Final = {
    signal.SIGKILL: "SIGKILL, as by the kernel when memory runs out",
    signal.SIGBUS: "SIGBUS, as for a file that was cut while it was read",
}
_SET_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of prctl(2)


def launch(command: Sequence[str], processes: int, environment: Mapping[str, str]) -> int:
    """Run a command as so many ranks, and return the exit code: rank 0's, or 75 if another rank failed.

    Rank 0 has this process's terminal. What the others write to stderr is shown if rank 0 cannot tell what happened.
    RanksError R603 if rank 0 was killed, or a rank ended without a word."""
    cores = len(os.sched_getaffinity(0))
    shared = {
        **environment,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        SECRET: secrets.token_hex(16),
        "DSLC_THREADS": environment.get("DSLC_THREADS", str(max(1, cores // processes))),
        PARENT: str(os.getpid()),
    }
    for name in ("TORCHELASTIC_USE_AGENT_STORE",):
        shared.pop(name, None)
    with ExitStack() as held:
        ranks = _Ranks()
        held.callback(ranks.kill)
        for number in (signal.SIGINT, signal.SIGTERM):
            held.callback(signal.signal, number, signal.signal(number, ranks.pass_on))
        for rank in range(processes):
            said = held.enter_context(tempfile.TemporaryFile())
            ranks.start(command, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, said)
        return ranks.wait()


class _Ranks:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said: list[IO[bytes]] = []
        self._asked: int | None = None  # the signal that asked this process to stop

    def start(self, command: Sequence[str], environment: Mapping[str, str], said: IO[bytes]) -> None:
        first = not self._processes
        self._said.append(said)
        self._processes.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=None if first else subprocess.DEVNULL,
                stdout=None if first else subprocess.DEVNULL,
                stderr=None if first else said,
                process_group=None if first else 0,  # Ctrl-C reaches rank 0, which decides
            )
        )

    def pass_on(self, number: int, frame: object) -> None:
        """Rank 0 gets a signal that this process gets; Ctrl-C has reached it already."""
        self._asked = number
        if number != signal.SIGINT and self._processes and self._processes[0].poll() is None:
            self._processes[0].send_signal(number)

    def wait(self) -> int:
        """Wait until all have ended; returns the exit code. When one has failed, the others end by themselves, rank 0
        after it has finished what it does. Those that do not are killed, and stopped ones, which cannot."""
        until = float("inf")
        while alive := [rank for rank, process in enumerate(self._processes) if process.poll() is None]:
            failed = [rank for rank, process in enumerate(self._processes) if process.returncode]
            if failed or alive == [0] or 0 not in alive:  # rank 0 ends soon after the others, and they after it
                until = min(until, time.monotonic() + (_AFTER if 0 in failed else FINISH + _AFTER))
                if time.monotonic() > until or all(self._is_stopped(rank) for rank in alive):
                    break
            time.sleep(_EVERY)
        codes = [process.returncode for process in self._processes]
        stopped = [rank for rank in alive if self._is_stopped(rank)]
        self.kill()
        for process in self._processes:
            process.wait()
        if not any(process.returncode for process in self._processes):
            return EXIT_OK
        if self._asked is not None and codes[0] in (-self._asked, _BARELY_STARTED):
            return 128 + self._asked  # it came before rank 0 could handle it
        if codes[0] is not None and codes[0] > 0:  # rank 0 has said why, but it does not see signals
            for rank, code in enumerate(codes):
                if code is not None and code < 0:
                    sys.stderr.write(f"{self._messages(rank)}rank {rank} was killed by {_killer(code)}\n")
            return codes[0]
        raise self._untold(codes, stopped)

    def _untold(self, codes: Sequence[int | None], stopped: Sequence[int]) -> RanksError:
        """What rank 0 could not tell: the rank that was killed, else one that failed by itself, else one that did not
        end (code None)."""
        late = [rank for rank, code in enumerate(codes) if code is None]
        ended = {rank: code for rank, code in enumerate(codes) if code}
        killed = [rank for rank, code in ended.items() if code < 0]
        failed = [rank for rank, code in ended.items() if code != EXIT_RANKS]
        rank = [*killed, *failed, *stopped, *late, *ended][0]
        code = codes[rank]
        if code is None:
            how = "it was stopped" if rank in stopped else "it did not end"
        elif code < 0:
            how = f"it was killed by {_killer(code)}"
        else:
            how = f"its exit code is {code}"
            sys.stderr.write(self._messages(rank))
        return RanksError("R603", f"rank {rank} of {len(codes)} has ended: {how}", place=f"rank {rank}",
                          help="`dslc train --resume` continues from the last checkpoint")  # fmt: skip

    def _is_stopped(self, rank: int) -> bool:
        """Whether a process that has not been waited for is stopped, by a signal or a debugger."""
        about = Path(f"/proc/{self._processes[rank].pid}/stat").read_bytes()
        return about[about.rindex(b")") + 2 :][:1] in (b"T", b"t")

    def _messages(self, rank: int) -> str:
        said = self._said[rank]
        said.seek(max(0, said.seek(0, os.SEEK_END) - _MOST_SAID))
        lines = said.read().decode(errors="replace").splitlines()
        return "".join(one_line(line) + "\n" for line in lines)

    def kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()  # a stopped process, too


def _killer(code: int) -> str:
    """The signal of a process's negative exit code."""
    number = signal.Signals(-code)
    return _KILLERS.get(number, number.name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_launcher(environment: Mapping[str, str]) -> None:
    """A rank of ``launch``: get SIGTERM when the launcher ends, even if it was killed. It is a request to rank 0; the
    others end with rank 0 once they follow it, and by the signal before. Does nothing in other processes."""
    if PARENT not in environment:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if str(os.getppid()) != environment[PARENT]:
        os.kill(os.getpid(), signal.SIGTERM)
