"""Processes that compile kernels concurrently; threads would wait for LLVM's lock.

A worker has one job at a time. A worker that dies with its job is replaced once. If no process can be started, or its
source differs from this one's, the work is done in this process. A worker gets no environment variable and no folder
that could influence a compiler.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import dslc
from dslc.base.child import Child, answering
from dslc.base.errors import BuildError, ResourceError
from dslc.base.owner import stopped
from dslc.compiler.ir.described import canonical
from dslc.compiler.toolchain.jobs import Job, run_job, sources_digest
from dslc.compiler.toolchain.spec_json import encode

_START: Final = "import sys; sys.path.append(sys.argv[1]); from dslc.compiler.toolchain.worker import main; main()"
_HUNG: Final = 600.0  # a worker counts as hung after so many seconds on one kernel
_LEAVING: Final = 2.0  # seconds that an idle worker may take to end


#: Variables with locations; all others are dropped: NVRTC_APPEND_FLAGS, NUMBA_OPT and their like change code.
_PASSED: Final = ("HOME", "PATH", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV")
_PASSED_HEADS: Final = ("LD_", "PYTHON")
#: The driver caches NVRTC's output, and would return code of another process for a kernel.
_SET: Final = {
    "CUDA_CACHE_DISABLE": "1",
    "LC_ALL": "C",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Done:
    """The ``code`` of a job. ``loose``: why the code may not be reproducible; None if it is."""

    job: Job
    code: bytes
    loose: str | None = None


class Crew(Protocol):
    """The interface of compilers. ``give`` a job only while one is ``free``; ``finished`` waits up to ``seconds``.

    Nothing is started before ``start``, and ``close`` may be repeated, so an interrupt at any point leaves no process.
    """

    def start(self) -> None: ...

    @property
    def free(self) -> bool: ...

    def give(self, job: Job) -> None: ...

    def finished(self, seconds: float) -> list[Done]: ...

    def close(self) -> None: ...


class Alone:
    """Compiles in this process, at once."""

    def __init__(self) -> None:
        self._done: list[Done] = []

    def start(self) -> None:
        """Does nothing."""

    @property
    def free(self) -> bool:
        return not self._done

    def give(self, job: Job) -> None:
        loose = "no process for their compilers could be started" if job.apart else None
        self._done.append(Done(job, run_job(job), loose))

    def finished(self, seconds: float) -> list[Done]:
        done, self._done = self._done, []
        if not done:
            time.sleep(seconds)
        return done

    def close(self) -> None:
        pass


class Processes:
    """``count`` workers; fewer if some do not start, and this process if none does."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._alone = Alone()
        self._workers: list[_Worker] = []

    def start(self) -> None:
        with suppress(OSError):
            while len(self._workers) < self._count:
                self._add(None)

    def _add(self, job: Job | None) -> None:
        """Start one more worker, with a job that the previous one did not survive. OSError if it does not start."""
        self._workers.append(_Worker(job))
        try:
            self._workers[-1].begin()
        except OSError:
            self._workers.pop()
            raise

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
        ready = answering(self._workers, seconds)
        for worker in ready:
            try:
                done += worker.read()
            except _Gone:
                self._replace(worker)
        for worker in [w for w in self._workers if w not in ready and w.silent()]:
            worker.process.kill()  # without waiting: a stopped process reacts to no other signal
            self._replace(worker)
        return done

    def _replace(self, worker: _Worker) -> None:
        """Replaces an ended worker. One without a job is dropped; a job that its worker did not survive is retried
        once."""
        job = worker.job
        if job is None:
            worker.close()
            self._workers.remove(worker)
            return
        how, killed = worker.mourned()
        self._workers.remove(worker)
        if worker.again:
            raise ResourceError(
                "R401" if killed else "R406",
                f"two processes that compiled {job.symbol} have ended: {how}",
                help="free some memory and build again; if that does not help, report it with the source",
            )
        self._add(job)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()


class _Gone(Exception):
    """The other end of the pipe is closed."""


class _Worker(Child):
    """One process. ``again``: a job that the previous process did not survive."""

    def __init__(self, again: Job | None = None) -> None:
        super().__init__()
        self.job: Job | None = None
        self.again = again
        self.idle = False  # until it reports that it is ready
        self._since = time.monotonic()  # the time when it last got work
        self._buffer = bytearray()

    def begin(self) -> None:
        """Start the process."""
        root = str(Path(dslc.__file__).resolve().parent.parent)
        # cwd: Numba reads a file of options from the current folder, NVRTC reads headers
        self.start([sys.executable, "-P", "-c", _START, root], env=_environment(), cwd="/")
        self.send(sources_digest())

    def give(self, job: Job) -> None:
        self.job, self.idle = job, False
        self._since = time.monotonic()
        data = {"kind": job.kind, "symbol": job.symbol, "spec": encode(job.spec), "options": job.options}
        self.send(json.dumps({**data, "text": canonical(job.spec)}))

    def silent(self) -> bool:
        """True if no answer can be expected: the process was stopped, or has worked for too long."""
        return not self.idle and (stopped(self.process.pid) or time.monotonic() - self._since > _HUNG)

    def read(self) -> list[Done]:
        """The available part of an answer; returns the code once it is complete. Raises the errors of the compiler."""
        part = self.receive()
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
        """How the process ended, after ``_Gone``, as text; and whether it was killed, as by a system short of memory.
        No signal is sent: it could be mistaken for the cause of an end that is under way."""
        self.close_pipes()
        return self.mourner.cause(), self.process.returncode == -signal.SIGKILL

    def close(self) -> None:
        """End the process; one that works at once, because nobody waits for its result."""
        self.end(_LEAVING if self.job is None and self.idle else 0.0)


def _environment() -> dict[str, str]:
    """The environment variables of a worker."""
    passed = {n: v for n, v in os.environ.items() if n in _PASSED or n.startswith(_PASSED_HEADS)}
    if "PYTHONPATH" in passed:
        passed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, passed["PYTHONPATH"].split(os.pathsep)))
    return {**passed, **_SET}
