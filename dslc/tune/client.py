"""The parent's side of the worker: sends requests, waits with a time limit, starts a new worker if one has ended."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import dslc
from dslc.base.child import Child, answering
from dslc.base.errors import EnvironmentFault, ResourceError

#: The command of a worker.
WORKER: Final = (sys.executable, "-P", "-m", "dslc.tune.worker")
#: Seconds that one candidate may take before it counts as hanging; library plans are built in this time, too.
PATIENCE: Final = 30.0
_START: Final = 120.0  # seconds to import, and to open the GPU
_LEAVING: Final = 2.0


class Gone(Exception):
    """The worker ended or hung while it had a request. The text says how; ``at``: the candidate that ran, if one was
    named; ``hung``: it did not answer in time."""

    def __init__(self, why: str, at: str | None, hung: bool = False) -> None:
        super().__init__(why)
        self.at, self.hung = at, hung


class Refused(Exception):
    """The worker refuses a problem; the text says why."""


class Client:
    """``command``: of the worker, by default ``WORKER``. ``hello``: the first request, sent to every worker that is
    started; ``gpu`` is its answer. ``patience``: seconds for one request. ``starts`` counts workers.

    ``with client: ...`` ends the worker. Nothing is started before the first request.
    """

    def __init__(self, hello: dict[str, Any], command: Sequence[str] = (), patience: float = PATIENCE) -> None:
        self._hello, self._command, self.patience = hello, command or WORKER, patience
        self._child: Child | None = None
        self._buffer = bytearray()
        self._answers: list[dict[str, Any]] = []
        self.gpu: dict[str, Any] = {}
        self.starts = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether a worker is running and has answered ``hello``."""
        return self._child is not None

    def start(self) -> dict[str, Any]:
        """Start a worker unless one runs; its answer to ``hello``. EnvironmentFault R201 and others if it cannot use
        the GPU, ResourceError R406 if it ends."""
        if self._child is None:
            self._child = Child()
            self._buffer.clear()
            self._answers.clear()
            self.starts += 1
            self._child.start(self._command, env=_environment())
            try:
                self.gpu = self._ask({"do": "hello", **self._hello}, _START)
            except Gone as gone:
                raise ResourceError(
                    "R406", f"the process that runs candidates has ended: {gone}",
                    help="try it again; if that does not help, report it",
                ) from gone  # fmt: skip
        return self.gpu

    def ask(self, do: str, patience: float | None = None, **fields: Any) -> dict[str, Any]:
        """The answer to a request. Raises Gone; the next ``start`` then starts a new worker."""
        assert self._child is not None, "start it first"
        answer = self._ask({"do": do, **fields}, self.patience if patience is None else patience)
        if answer.get("lost"):
            self._end()
        return answer

    def _ask(self, request: dict[str, Any], patience: float) -> dict[str, Any]:
        assert self._child is not None
        self._child.send(json.dumps(request))
        deadline = time.monotonic() + patience
        at: str | None = None
        while True:
            while self._answers:
                answer = self._answers.pop(0)
                if "at" in answer:
                    at = answer["at"]
                    patience = answer["patience"] * _busy() if "patience" in answer else patience
                    deadline = time.monotonic() + patience
                elif "failed" in answer:
                    self._end()
                    code, message = answer["failed"]
                    raise EnvironmentFault(code, message, place="the process that runs candidates")
                else:
                    return answer
            left = deadline - time.monotonic()
            if left <= 0:
                self._kill()
                raise Gone(f"did not end within {patience:.3g} s", at, hung=True)
            if answering([self._child], left):
                part = self._child.receive()
                if not part:
                    raise Gone(self._mourned(), at)
                self._take(part)

    def _take(self, part: bytes) -> None:
        self._buffer += part
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        self._answers += [json.loads(line) for line in lines]

    def _mourned(self) -> str:
        child, self._child = self._child, None
        assert child is not None
        child.close_pipes()
        return child.mourner.cause()

    def _kill(self) -> None:
        assert self._child is not None
        self._child.process.kill()  # a hung GPU call reacts to nothing else
        self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end(_LEAVING)

    def close(self) -> None:
        """End the worker. May be repeated."""
        child = self._child
        if child is not None:
            child.end(_LEAVING)
            self._child = None


def _busy() -> float:
    """How many processes want each processor, at least 1: a worker gets its share of the time of a busy machine."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def _environment() -> dict[str, str]:
    """This process's environment, with the package's folder on the path."""
    root = str(Path(dslc.__file__).resolve().parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
