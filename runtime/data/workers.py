"""Worker processes that read ahead: tasks are distributed in turn, results are returned in the order of the tasks.

Each worker shares anonymous memory with this process: a head (see worker.py) and a few slots. A slot has the requested
row numbers and space for every column. The pipes carry only text, never objects.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.child import Child, answering
from dslc.base.errors import DataError, ResourceError
from dslc.base.opened import Opened
from dslc.base.turns import Always
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.wanted import Wanted
from dslc.runtime.data.worker import COUNTER, IDLE, ROW, SLOT

DEPTH: Final = 2  # slots per worker
_HEAD: Final = 64  # bytes
_PATIENCE: Final = 60.0  # a worker counts as hung after so many seconds without progress


class _Worker(Child):
    """One process, its memory, and its unanswered requests."""

    def __init__(self, task: Mapping[str, Any], patience: float) -> None:
        super().__init__()
        self._task = task
        self._patience = patience
        self._files = Opened()
        self.pending: dict[int, str] = {}  # slot -> the line of the request
        self.answers: dict[int, dict[str, Any]] = {}

    def begin(self) -> None:
        """Start the process. ResourceError R401."""
        try:
            self._handle = self._files.memory("dslc-data", self._task["bytes"])
            self.memory = mmap.mmap(self._handle, self._task["bytes"])
            self.head = np.frombuffer(self.memory, np.int64, _HEAD // 8)
            self._again()
        except OSError as error:
            help = "set data.workers to a smaller number"
            raise ResourceError("R401", f"no worker process: {error}", place="data.workers", help=help) from error

    def _again(self) -> None:
        self.head[SLOT] = IDLE
        self._rest = b""
        self._hung = False
        command = [sys.executable, "-P", "-m", "dslc.runtime.data.worker", str(self._handle)]
        self.start(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, pass_fds=[self._handle])
        self.send(json.dumps(self._task))

    def ask(self, slot: int, count: int, epoch: int) -> None:
        line = json.dumps({"slot": slot, "count": count, "epoch": epoch})
        self.pending[slot] = line
        self.send(line)

    def answer(self, slot: int) -> dict[str, Any]:
        """Wait for the answer for a slot. If the worker dies or hangs, gives a bad sample and replaces the worker."""
        while slot not in self.answers:
            line = self._line()
            if line is None:
                self._replace()
                continue
            found = json.loads(line)
            if found["slot"] == IDLE:
                _raise(found["error"])
            del self.pending[found["slot"]]
            self.answers[found["slot"]] = found
        return self.answers.pop(slot)

    def _line(self) -> bytes | None:
        """The next line; None if the process has ended, or has made no progress for ``patience`` seconds."""
        counter = int(self.head[COUNTER])
        while b"\n" not in self._rest:
            if not answering([self], self._patience):
                if int(self.head[COUNTER]) == counter:
                    self._hung = True
                    return None
                counter = int(self.head[COUNTER])
                continue
            part = self.receive()
            if not part:
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _replace(self) -> None:
        slot, row = int(self.head[SLOT]), int(self.head[ROW])
        why = self._mourned()
        if slot == IDLE or row == IDLE:
            memory = self.mourner.for_memory
            raise ResourceError(
                "R401" if memory else "R406",
                f"{why}, before it read a row",
                place="data.workers",
                help="set data.workers to a smaller number" if memory else "read its output above",
            )
        del self.pending[slot]
        self.answers[slot] = {"slot": slot, "bad": [row, "", why]}
        self._again()
        for line in self.pending.values():
            self.send(line)

    def _mourned(self) -> str:
        """How the process ended; kills it if it hangs."""
        if self._hung:
            self.stop()
            return f"the worker process hung for {self._patience:.0f} s"
        self.close_pipes()
        return f"the worker process has ended, {self.mourner.cause()}"

    def stop(self) -> None:
        """End the process; its memory remains."""
        self.end(0.05 if self.pending else 1.0)

    def close(self) -> None:
        self.stop()
        self._files.close_all()


class Workers:
    """``count`` processes that read columns. Tasks are numbered from 0; worker i % count runs task i.

    Nothing is started before ``start``, and ``close`` may be repeated, so an interrupt at any point leaves no process.
    """

    def __init__(
        self,
        columns: Sequence[Wanted],
        *,
        rows: int,
        count: int,
        seed: int,
        training: bool,
        patience: float = _PATIENCE,
    ) -> None:
        """``rows``: the largest number of rows in a task."""
        self.rows = rows
        self._columns = columns
        self._offsets: list[int] = []
        end = _aligned(8 * rows)
        for wanted in columns:
            self._offsets.append(end)
            row = numpy_dtype(wanted.tensor.dtype).itemsize * int(np.prod(wanted.shape, dtype=object))
            end = _aligned(end + rows * row)
        self._slots = [_HEAD + slot * end for slot in range(DEPTH)]
        self._task = {
            "columns": [wanted.as_data() for wanted in columns],
            "offsets": self._offsets,
            "slots": self._slots,
            "bytes": _HEAD + DEPTH * end,
            "seed": seed,
            "training": training,
        }
        self._count, self._patience = count, patience
        self._workers: list[_Worker] = []
        self._queue: deque[tuple[int, int]] = deque()  # (worker, slot), oldest first; the caller may be using the first
        self._next = 0

    def start(self) -> None:
        """Raises ResourceError R401 if a process cannot be started."""
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._task, self._patience))
            self._workers[-1].begin()

    @property
    def room(self) -> bool:
        """True if another task can be submitted now."""
        return len(self._queue) < DEPTH * len(self._workers)

    def ask(self, rows: NDArray[np.int64], epoch: int) -> None:
        """Request rows of an epoch; there must be room."""
        worker, slot = self._next % len(self._workers), self._next // len(self._workers) % DEPTH
        self._next += 1
        self._queue.append((worker, slot))
        self._ask(worker, slot, rows, epoch)

    def ask_again(self, rows: NDArray[np.int64], epoch: int) -> None:
        """Replace the rows of the oldest task."""
        self._ask(*self._queue[0], rows, epoch)

    def _ask(self, worker: int, slot: int, rows: NDArray[np.int64], epoch: int) -> None:
        memory = self._workers[worker].memory
        np.frombuffer(memory, np.int64, len(rows), self._slots[slot])[...] = rows
        self._workers[worker].ask(slot, len(rows), epoch)

    def oldest(self, count: int) -> dict[str, NDArray[Any]]:
        """The columns of the oldest task, which has ``count`` rows; the views are valid until ``done``.

        Raises BadSample, after which ``ask_again`` may request other rows, and DataError.
        """
        worker, slot = self._queue[0]
        answer = self._workers[worker].answer(slot)
        if "error" in answer:
            _raise(answer["error"])
        if "bad" in answer:
            raise BadSample(*answer["bad"])
        found = {}
        for wanted, offset in zip(self._columns, self._offsets):
            dtype, size = numpy_dtype(wanted.tensor.dtype), count * int(np.prod(wanted.shape, dtype=np.int64))
            flat = np.frombuffer(self._workers[worker].memory, dtype, size, self._slots[slot] + offset)
            found[wanted.tensor.name] = flat.reshape(count, *wanted.shape)
        return found

    def done(self) -> None:
        """Release the columns of the oldest task."""
        self._queue.popleft()

    def close(self) -> None:
        """End all processes. May be repeated."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()


def unreadable(wanted: Wanted, rows: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Those of the rows that cannot be read, with place and reason, found by a process of their own."""
    found: dict[int, tuple[str, str]] = {}
    if not rows:
        return found
    pool = Workers([wanted], rows=1, count=1, seed=0, training=False)
    with Always(pool.close), Always(pool.close):
        pool.start()
        for row in rows:
            pool.ask(np.array([row]), 0)
            try:
                pool.oldest(1)
            except BadSample as bad:
                found[row] = bad.place, bad.why
            pool.done()
    return found


def _aligned(count: int) -> int:
    return -(-count // 64) * 64


def _raise(error: Sequence[Any]) -> NoReturn:
    code, message, place, help = error
    raise DataError(code, message, place=place, help=help)
