"""A process that compiles kernels: reads jobs as lines of JSON from stdin, writes answers to stdout.

The first input line is the digest of the compiler's source in the parent; a worker with another digest answers that it
cannot help. Each answer is a line of JSON: {"bytes": N, "loose": null} followed by N bytes of code, or {"error": ...}.
``loose`` is a text if the code may not be reproducible. The process ends when its stdin is closed, so it never outlives
its parent.

A GPU kernel is compiled by a forked child, a copy of the worker as it was before the first of these kernels.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from dslc.base.errors import DslcError
from dslc.compiler.ir.described import canonical
from dslc.compiler.toolchain.jobs import Job, prepared, run_job, sources_digest
from dslc.compiler.toolchain.spec_json import decode

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Runs until stdin ends. Stdout carries only answers: other output to it is redirected to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the parent was killed, end silently
    faulthandler.enable()  # a crashing compiler prints its location
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    known = sys.stdin.readline().strip() == sources_digest()
    _answer(answers, {"ready": known})
    worker = _Worker(answers)
    for line in sys.stdin:
        worker.take(line)


class _Worker:
    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._used: str | None = None  # why a child is no longer a copy of the unused worker

    def take(self, line: str) -> None:
        """Compile the job in a line and answer."""
        with self._reported():
            data = json.loads(line)
            job = Job(data["kind"], data["symbol"], decode(data["spec"]), tuple(data["options"]))
            assert canonical(job.spec) == data["text"], f"a description was changed in transit: {data['text']}"
            if job.apart:
                self._apart(job, prepared(job.kind))
            else:
                self._compile(job, None)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Sends an exception of the block as the answer; the parent raises it again."""
        try:
            yield
        except DslcError as error:
            _answer(self._answers, {"error": [error.code, error.message, error.place, error.help]})
        except Exception:  # noqa: BLE001
            _answer(self._answers, {"failed": traceback.format_exc()})

    def _compile(self, job: Job, loose: str | None) -> None:
        code = run_job(job)
        _answer(self._answers, {"bytes": len(code), "loose": loose}, code)

    def _apart(self, job: Job, loose: str | None) -> None:
        """Compile the job in a child. If the child ends abnormally, end in the same way: the parent detects it, reports
        how it ended, and lets another worker try."""
        worker = os.getpid()
        try:
            child = os.fork()
        except OSError as error:
            self._used = f"no process could be started: {error.strerror}"
            self._compile(job, self._used)
            return
        if child == 0:
            code = 1
            try:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == worker:  # else the worker ended before the death signal was set
                    with self._reported():
                        self._compile(job, loose or self._used)
                code = 0
            finally:
                os._exit(code)  # the child must not return to the worker's loop of jobs
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended < 0:
            with suppress(OSError):  # a signal that always kills
                signal.signal(-ended, signal.SIG_DFL)
            os.kill(worker, -ended)
        if ended:
            sys.exit(ended)


def _answer(out: Any, data: dict[str, Any], code: bytes = b"") -> None:
    out.write(json.dumps(data).encode() + b"\n" + code)
    out.flush()
