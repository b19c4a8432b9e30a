"""Compiles many kernels: takes those in the cache from there, and compiles the others by as many processes as pay off.

Two concurrent builds that need the same kernels share the work: each compiles those whose lock it gets, and takes the
others from the cache when they are available. If they do not appear because the other build is stopped, it compiles
them, too.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dslc.base.cache import PATIENCE, Cache, Claim
from dslc.base.errors import DslcWarning
from dslc.base.turns import Always
from dslc.compiler.toolchain.jobs import Job
from dslc.compiler.toolchain.processes import Alone, Crew, Done, Processes

_SHARE: Final = 8  # kernels that justify the start of a process
_MOST: Final = 32  # processes
_PAUSE: Final = 0.05  # seconds between checks of the kernels that other builds compile

Progress = Callable[[str, int, int], None]


class _Claims(dict[Job, Claim]):
    """What this build compiles now."""

    def done(self, job: Job) -> None:
        self[job].release()
        del self[job]

    def close(self) -> None:
        for claim in self.values():
            claim.release()


class KernelCompiler:
    """``progress(what, done, total)`` is called for each kernel, and ``found(job, code)`` when its code is there.
    ``processes``: the largest number of processes, by default the processors that this process may use; ``share``: the
    number of kernels that justify the start of one, 8 by default. ``loose``: a kernel was compiled whose code may not
    be reproducible; such kernels are not cached, and warning W009 reports them."""

    def __init__(
        self, cache: Cache, progress: Progress | None = None, processes: int | None = None, *, share: int | None = None,
        found: Callable[[Job, bytes], None] | None = None,
    ) -> None:  # fmt: skip
        self.cache = cache
        self.asked = 0
        self.loose = False
        self._progress, self._found = progress, found
        self._share = _SHARE if share is None else share
        self._processes = min(_MOST, len(os.sched_getaffinity(0))) if processes is None else processes

    def compile(self, jobs: Sequence[Job]) -> list[bytes]:
        """The code of each job, in the order of the jobs. Raises the errors of the compilers; ResourceError R401 if
        compiling processes are killed."""
        self.asked += len(jobs)
        found: dict[Job, bytes] = {}
        for job in jobs:
            code = self.cache.get(job.kind, job.fields)
            if code is not None:
                self._keep(found, job, code)
        missing = deque(job for job in jobs if job not in found)
        if missing:
            count = max(1, min(self._processes, len(missing) // self._share))
            apart = any(job.apart for job in missing)
            crew: Crew = Processes(count) if count > 1 or apart else Alone()
            claims = _Claims()
            with Always(crew.close), Always(crew.close), Always(claims.close), Always(claims.close):
                crew.start()
                self._compile(missing, found, claims, crew)
        return [found[job] for job in jobs]

    def _compile(self, missing: deque[Job], found: dict[Job, bytes], claims: _Claims, crew: Crew) -> None:
        total = len(missing)
        got = time.monotonic()  # time of the last successful claim, the sign that other builds make progress
        done: list[Done] = []
        while True:
            tries = len(missing)
            while missing and tries and crew.free:
                job = missing.popleft()
                claims[job] = self.cache.claim(job.kind, job.fields)
                if claims[job].take():
                    got = time.monotonic()
                elif time.monotonic() - got < PATIENCE:
                    del claims[job]
                    missing.append(job)  # another build is compiling it
                    tries -= 1
                    continue
                code = self.cache.get(job.kind, job.fields, again=True)
                if code is None:
                    crew.give(job)
                else:
                    self._keep(found, job, code)
                    claims.done(job)
            for each in done:  # while the crew works on the next ones
                self._keep(found, each.job, each.code)
                self.cache.put(each.job.kind, each.job.fields, each.code, keep=each.loose is None)
                claims.done(each.job)
                self._tell(each.loose)
            if self._progress is not None:
                self._progress("kernels", total - len(missing) - len(claims), total)
            if not missing and not claims:
                return
            done = crew.finished(_PAUSE)

    def _keep(self, found: dict[Job, bytes], job: Job, code: bytes) -> None:
        found[job] = code
        if self._found is not None:
            self._found(job, code)

    def _tell(self, loose: str | None) -> None:
        if loose is not None and not self.loose:
            self.loose = True
            what = f"another build of this artifact may give its kernels other bytes: {loose}"
            warnings.warn(DslcWarning("W009", what), stacklevel=4)
