"""A process that compiles kernels: jobs as lines of JSON on stdin, answers on stdout.

The first line in is the digest of the compiler's source in the parent; a worker that finds another one answers that it
cannot help. Each answer is a line of JSON, {"bytes": N, "loose": null} with N bytes of code after it, or
{"error": ...}; ``loose`` is a text where the code may have other bytes another time. The process ends with its stdin,
so it never outlives its parent.

A kernel for a GPU is compiled by a child, which is a copy of the worker as it was before the first of them.
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
from dslc.compiler.toolchain.specs import decode

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Until stdin ends. Stdout is for answers alone: what else writes there goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # where the parent was killed, nobody is to hear of it
    faulthandler.enable()  # a compiler that crashes says where
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
        self._used: str | None = None  # why a child is no longer the copy that it is to be

    def take(self, line: str) -> None:
        """Compile what a line asks for and answer."""
        with self._reported():
            data = json.loads(line)
            job = Job(data["kind"], data["symbol"], decode(data["spec"]), tuple(data["options"]))
            assert canonical(job.spec) == data["text"], f"a description has changed on its way: {data['text']}"
            if job.apart:
                self._apart(job, prepared(job.kind))
            else:
                self._compile(job, None)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """What the block raises is an answer, too; the parent raises it again."""
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
        """Have a child compile it, and end as the child does when that is no good end: the parent sees it, says how it
        ended, and has another worker try."""
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
                if os.getppid() == worker:  # else it ended before it could take us along
                    with self._reported():
                        self._compile(job, loose or self._used)
                code = 0
            finally:
                os._exit(code)  # the loop of jobs is the worker's
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
