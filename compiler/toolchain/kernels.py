"""Code for many kernels: what the cache has of it, and the rest compiled by as many processes as pay.

Two builds that need the same kernels at a time share the work: each compiles those whose lock it gets, and takes the
others from the cache when they are there.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dslc.base.cache import PATIENCE, Cache, Claim
from dslc.compiler.toolchain.crew import Alone, Crew, Processes
from dslc.compiler.toolchain.jobs import Job

_SHARE: Final = 8  # kernels that are worth the start of a process
_MOST: Final = 32  # processes
_PAUSE: Final = 0.05  # seconds between looks at what other builds compile

Progress = Callable[[str, int, int], None]


class KernelCompiler:
    """``progress(what, done, total)`` is told of each kernel; ``processes``: at most so many, by default the processors
    that this process may use."""

    def __init__(self, cache: Cache, progress: Progress | None = None, processes: int | None = None) -> None:
        self.cache = cache
        self.asked = 0
        self._progress = progress
        self._processes = min(_MOST, len(os.sched_getaffinity(0))) if processes is None else processes

    def compile(self, jobs: Sequence[Job]) -> list[bytes]:
        """The code of each job, in their order. Raises what a compiler raises; ResourceError R401 where processes that
        compile are killed."""
        self.asked += len(jobs)
        found = {}
        for job in jobs:
            code = self.cache.get(job.kind, job.fields)
            if code is not None:
                found[job] = code
        missing = deque(job for job in jobs if job not in found)
        if missing:
            count = min(self._processes, len(missing) // _SHARE)
            crew: Crew = Processes(count) if count > 1 else Alone()
            claims: dict[Job, Claim] = {}
            try:
                self._compile(missing, found, claims, crew)
            finally:
                for claim in claims.values():
                    claim.release()
                crew.close()
        return [found[job] for job in jobs]

    def _compile(self, missing: deque[Job], found: dict[Job, bytes], claims: dict[Job, Claim], crew: Crew) -> None:
        total, start = len(missing), time.monotonic()
        done: list[tuple[Job, bytes]] = []
        while True:
            tries = len(missing)
            while missing and tries and crew.free:
                job = missing.popleft()
                claim = self.cache.claim(job.kind, job.fields)
                if claim is None and time.monotonic() - start < PATIENCE:
                    missing.append(job)  # another build compiles it now
                    tries -= 1
                    continue
                claims[job] = claim or Claim(None)
                code = self.cache.get(job.kind, job.fields, again=True)
                if code is None:
                    crew.give(job)
                else:
                    found[job] = code
                    claims.pop(job).release()
            for job, code in done:  # while the crew is at work on the next ones
                found[job] = code
                self.cache.put(job.kind, job.fields, code)
                claims.pop(job).release()
            if self._progress is not None:
                self._progress("kernels", total - len(missing) - len(claims), total)
            if not missing and not claims:
                return
            done = crew.finished(_PAUSE)
