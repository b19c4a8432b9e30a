"""Processes that compile kernels beside each other; LLVM holds a lock that threads would wait for.

A worker has one job at a time. One that dies with it is replaced, once; where no process can be had, or its source is
another than this one's, the work is done here. A worker sees no variable of the environment and no folder that could
decide what a compiler does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import dslc
from dslc.base.ended import Mourner
from dslc.base.errors import BuildError, ResourceError
from dslc.base.owner import stopped
from dslc.compiler.ir.described import canonical
from dslc.compiler.toolchain.jobs import Job, run_job, sources_digest
from dslc.compiler.toolchain.specs import encode

_START: Final = "import sys; sys.path.append(sys.argv[1]); from dslc.compiler.toolchain.worker import main; main()"
_CHUNK: Final = 1 << 16
_HUNG: Final = 600.0  # seconds of one kernel after which a worker counts as hung
_LEAVING: Final = 2.0  # seconds for which an idle worker may take to end


#: Variables that say where things are; all others end here: NVRTC_APPEND_FLAGS, NUMBA_OPT and their like change code.
_PASSED: Final = ("HOME", "PATH", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV")
_PASSED_HEADS: Final = ("LD_", "PYTHON")
#: The driver keeps what NVRTC has compiled, and would give another process's code for a kernel.
_SET: Final = {
    "CUDA_CACHE_DISABLE": "1",
    "LC_ALL": "C",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Done:
    """A job's ``code``. ``loose``: why the same job may come to other bytes another time; None where it cannot."""

    job: Job
    code: bytes
    loose: str | None = None


class Crew(Protocol):
    """Who compiles. ``give`` a job only while one is ``free``; ``finished`` waits up to ``seconds`` for any answer."""

    @property
    def free(self) -> bool: ...

    def give(self, job: Job) -> None: ...

    def finished(self, seconds: float) -> list[Done]: ...

    def close(self) -> None: ...


class Alone:
    """Compiles in this process, at once."""

    def __init__(self) -> None:
        self._done: list[Done] = []

    @property
    def free(self) -> bool:
        return not self._done

    def give(self, job: Job) -> None:
        loose = "no process could be started for their compilers" if job.apart else None
        self._done.append(Done(job, run_job(job), loose))

    def finished(self, seconds: float) -> list[Done]:
        done, self._done = self._done, []
        if not done:
            time.sleep(seconds)
        return done

    def close(self) -> None:
        pass


class Processes:
    """``count`` workers; fewer, or none and this process instead, where they do not start."""

    def __init__(self, count: int) -> None:
        self._alone = Alone()
        self._workers: list[_Worker] = []
        with suppress(OSError):
            while len(self._workers) < count:
                self._workers.append(_Worker())

    @property
    def free(self) -> bool:
        return any(w.idle for w in self._workers) if self._workers else self._alone.free

    def give(self, job: Job) -> None:
        if self._workers:
            next(w for w in self._workers if w.idle).give(job)
        else:
            self._alone.give(job)

    def finished(self, seconds: float) -> list[Done]:
        if not self._workers:
            return self._alone.finished(seconds)
        done = []
        ready, _, _ = select.select(self._workers, [], [], seconds)
        for worker in ready:
            try:
                done += worker.read()
            except _Gone:
                self._replace(worker)
        for worker in [w for w in self._workers if w not in ready and w.silent()]:
            worker.kill()
            self._replace(worker)
        return done

    def _replace(self, worker: _Worker) -> None:
        """A worker that ends before it has a job is not needed; one that ends with it leaves it to another, once."""
        self._workers.remove(worker)
        job = worker.job
        if job is None:
            worker.close()
            return
        how, killed = worker.mourned()
        if worker.again:
            raise ResourceError(
                "R401" if killed else "R406",
                f"two processes that compiled {job.symbol} have ended: {how}",
                help="free some memory and build again; if that does not help, report it with the source",
            )
        self._workers.append(_Worker(job))

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()


class _Gone(Exception):
    """The other end of the pipe is closed."""


class _Worker:
    """One process. ``again``: a job that the process before it has not survived."""

    def __init__(self, again: Job | None = None) -> None:
        self.job: Job | None = None
        self.again = again
        self.idle = False  # until it says that it is ready
        self._since = time.monotonic()  # when it was given something to do
        self._buffer = bytearray()
        root = str(Path(dslc.__file__).resolve().parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            cwd="/",  # Numba reads a file of options from its folder, NVRTC headers
            process_group=0,  # Ctrl-C is the parent's, which closes stdin when it is done
        )
        self._mourner = Mourner(self._process)
        self._send(sources_digest())

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died: ``read`` sees that
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def give(self, job: Job) -> None:
        self.job, self.idle = job, False
        self._since = time.monotonic()
        data = {"kind": job.kind, "symbol": job.symbol, "spec": encode(job.spec), "options": job.options}
        self._send(json.dumps({**data, "text": canonical(job.spec)}))

    def silent(self) -> bool:
        """Whether nothing is to be expected of it: it was stopped, or works for too long."""
        return not self.idle and (stopped(self._process.pid) or time.monotonic() - self._since > _HUNG)

    def kill(self) -> None:
        """End it at once, without waiting: a stopped process hears no other signal."""
        self._process.kill()

    def read(self) -> list[Done]:
        """What is there of an answer; the job's code once it is whole. Raises what the compiler raised."""
        part = os.read(self.fileno(), _CHUNK)
        if not part:
            raise _Gone
        self._buffer += part
        line, end, code = self._buffer.partition(b"\n")
        if not end:
            return []
        head: dict[str, Any] = json.loads(line)
        if len(code) < head.get("bytes", 0):
            return []
        self._buffer.clear()
        if "failed" in head:
            raise RuntimeError(f"a compiler process failed\n{head['failed']}")
        if "error" in head:
            code_of_error, message, place, help = head["error"]
            raise BuildError(code_of_error, message, place=place, help=help)
        if head.get("ready") is False:
            raise _Gone
        done = [] if self.job is None else [Done(self.job, bytes(code), head["loose"])]
        self.job, self.idle = None, True
        if self.again is not None and not done:
            self.give(self.again)
        return done

    def mourned(self) -> tuple[str, bool]:
        """How it ended, after ``_Gone``, for people; and whether somebody killed it, as a system short of memory does.
        Nothing is sent to it: a process that is about to end would take a signal of ours for its cause."""
        self._close_pipes()
        return self._mourner.cause(), self._process.returncode == -signal.SIGKILL

    def close(self) -> None:
        """End it."""
        self._close_pipes()
        if self.job is not None or not self.idle:
            self._process.kill()  # nobody waits for what it compiles; and one that is stopped hears of nothing else
        try:
            self._process.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close_pipes(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()


def _environment() -> dict[str, str]:
    """The environment of a worker."""
    passed = {n: v for n, v in os.environ.items() if n in _PASSED or n.startswith(_PASSED_HEADS)}
    if "PYTHONPATH" in passed:
        passed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, passed["PYTHONPATH"].split(os.pathsep)))
    return {**passed, **_SET}
