"""Runs native kernels: lists of commands, and the threads that work on them.

A ``CommandList`` is made once, when a plan is bound: for each kernel its address, the addresses of its arguments, the
number of its tasks, and whether it must wait for those before it. One call runs it. Helpers of the ``Team`` sleep in
Python; woken, each goes into the same list with a call of its own, without the interpreter, and all claim tasks. What a
task computes does not depend on who runs it, so the bits are the same for any number of threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cpu.objects import Objects

MOST_THREADS: Final = 64
_WORTH: Final = 64  # tasks of a list from which on helpers are woken; a task is some microseconds
_WIDEST_WAVE: Final = 256  # arguments, so that finding waves takes time linear in kernels
_LINE: Final = 8  # words of a cache line
_RUN: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class CommandList:
    """Kernels to be run in order. ``run`` may not be called by two threads at a time."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects  # the code lives as long as the list
        self._rows: list[tuple[int, int, int, bool]] = []
        self._wave = _Wave()
        self._args: list[NDArray[np.uint64]] = []
        self._views: list[NDArray[Any]] = []
        self._table: NDArray[np.int64] | None = None

    def add(self, symbol: str, arguments: Sequence[tuple[NDArray[Any], bool]], tasks: int) -> None:
        """A kernel with the views that are its arguments; of each, whether it is written."""
        assert self._table is None, "the list has run"
        views = [view for view, _ in arguments]
        pointers = np.array([a.ctypes.data for a in views], np.uint64)
        self._args.append(pointers)
        self._views += views
        waits = not self._wave.takes(*([_bytes(v) for v, w in arguments if w is written] for written in (False, True)))
        self._rows.append((self._objects.address(symbol), pointers.ctypes.data, tasks, waits))

    def run(self) -> None:
        """All kernels, one after the other where one reads or writes what another writes."""
        if self._table is None:
            self._table = np.array(self._rows, np.int64).reshape(-1, 4)
            self._wide = sum(row[2] for row in self._rows if row[2] > 1) >= _WORTH
        team().run(self._objects, self._table, self._wide)


def _bytes(view: NDArray[Any]) -> range:
    """The addresses of a dense view."""
    return range(view.ctypes.data, view.ctypes.data + view.nbytes)


class _Wave:
    """The bytes that kernels touch between two waits."""

    def __init__(self) -> None:
        self._read: list[range] = []
        self._written: list[range] = []

    def takes(self, reads: Sequence[range], writes: Sequence[range]) -> bool:
        """Whether a kernel may run beside those of the wave; if not, it begins a new one."""
        known = (*self._read, *self._written)
        beside = not (_meet(reads, self._written) or _meet(writes, known)) and len(known) <= _WIDEST_WAVE
        if not beside:
            self._read.clear()
            self._written.clear()
        self._read += reads
        self._written += writes
        return beside


def _meet(these: Sequence[range], those: Sequence[range]) -> bool:
    return any(a.start < b.stop and b.start < a.stop for a in these for b in those)


class Team:
    """``threads`` in all: the caller and helpers, which start with the first list that is worth it.

    One list runs with helpers at a time; a caller that finds them busy runs its list alone.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._busy = threading.Lock()
        self._wake: list[threading.Lock] = []
        self._job: tuple[Objects, NDArray[np.int64], int] | None = None
        give = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
        assert give is not None
        # what the driver shares: {tasks done, the address of sched_yield}, and a line for each thread
        self._block = np.zeros((threads + 2) * _LINE, np.int64)
        self._shared = self._block[-self._block.ctypes.data // 8 % _LINE :]
        self._shared[1] = give

    def run(self, objects: Objects, table: NDArray[np.int64], wide: bool) -> None:
        """Runs the commands of ``table``, i64 [commands, 4], through the driver of ``objects``."""
        call = _RUN(objects.driver)
        place, count = table.ctypes.data, len(table)
        if not wide or not count or self.threads == 1 or not self._busy.acquire(blocking=False):
            call(place, count, None, 0, 0, 1)
            return
        try:
            self._start()
            base = int(self._shared[0])  # nothing runs: it holds still
            self._job = (objects, table, base)
            try:
                for lock in self._wake:
                    if lock.locked():  # else it still has to wake for an earlier run
                        lock.release()
            finally:  # an interrupt must not leave a run to the helpers, who do not wait for its end
                call(place, count, self._shared.ctypes.data, base, 0, self.threads)
                self._job = None
        finally:
            self._busy.release()

    def _start(self) -> None:
        while len(self._wake) < self.threads - 1:
            lock = threading.Lock()
            lock.acquire()
            lane = len(self._wake) + 1
            helper = threading.Thread(target=self._help, args=(lane, lock), name=f"dslc-{lane}", daemon=True)
            helper.start()  # before it is counted: where no thread can be had, the next call tries again
            self._wake.append(lock)

    def _help(self, lane: int, lock: threading.Lock) -> None:
        shared, seen = self._shared.ctypes.data, -1
        while True:
            lock.acquire()
            job = self._job
            if job is None or job[2] == seen:
                continue  # woken twice
            objects, table, base = job
            seen = base
            _RUN(objects.driver)(table.ctypes.data, len(table), shared, base, lane, self.threads)
            # The caller may be done, and let go of code and table, while this thread is still in them: it holds both
            # until it has left.
            del job, objects, table


def thread_count() -> int:
    """``DSLC_THREADS``, else the processors that this process may use. InputError R105 for a number out of range."""
    asked = os.environ.get("DSLC_THREADS")
    if asked is None:
        return min(MOST_THREADS, len(os.sched_getaffinity(0)))
    if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked) <= MOST_THREADS:
        raise InputError(
            "R105", f"DSLC_THREADS is {asked[:40]!r}", place="DSLC_THREADS", help=f"a number from 1 to {MOST_THREADS}"
        )
    return int(asked)


_team: Team | None = None
_making = threading.Lock()


def team() -> Team:
    """The process's team."""
    global _team
    if _team is None:
        with _making:
            if _team is None:
                _team = Team(thread_count())
    return _team


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _team, _making
    _team, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
