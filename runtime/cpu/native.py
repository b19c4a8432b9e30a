"""Runs native kernels: lists of commands, and the threads that work on them.

A ``CommandList`` is created once, when a plan is bound. It holds for each kernel its address, the addresses of its
arguments, its number of tasks, and whether it must wait for earlier kernels. One call runs the list. The helper
threads of the ``Team`` sleep in Python. Once woken, each enters the same list by a call of its own, without the
interpreter, and all threads claim tasks. A task's result does not depend on the thread that runs it, so the bits are
the same for any number of threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dslc.base.errors import InputError
from dslc.base.turns import Turn, unbroken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cpu.objects import Objects
    from dslc.runtime.session.backend import Change

MOST_THREADS: Final = 64
_WORTH: Final = 64  # helpers are woken for a list with at least so many tasks; a task takes some microseconds
_WIDEST_WAVE: Final = 256  # arguments of a wave; bounds its search, which is then linear in kernels
_LINE: Final = 8  # words of a cache line
#: The dtypes of arguments by value. Each takes the place of a pointer.
VALUES: Final = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
Call: TypeAlias = Callable[[], object]
_RUN: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def values_of(arguments: Sequence[tuple[str, int | float]]) -> list[NDArray[Any]]:
    """Arguments by value, such as ("i64", 5), as ``CommandList.add`` takes them."""
    return [np.array([value], VALUES[kind]) for kind, value in arguments]


class CommandList:
    """Kernels to run in order. Not thread-safe."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects  # keeps the code alive as long as the list
        self._rows: list[tuple[int, int, int, bool]] = []
        self._tables: list[NDArray[np.int64]] = []  # the rows before these
        self._waits = False  # whether the next kernel waits, whatever it accesses
        self._wave = Wave()
        self._args: list[NDArray[np.uint64]] = []
        self._views: list[NDArray[Any]] = []

    def add(
        self,
        symbol: str,
        arguments: Sequence[tuple[NDArray[Any], bool]],
        tasks: int,
        values: Sequence[NDArray[Any]] = (),
    ) -> None:
        """Append a kernel with its arguments: (view, whether the kernel writes it), then ``values``, arrays of one
        number of at most 8 bytes."""
        assert "job" not in self.__dict__, "the list has run"
        views = [view for view, _ in arguments]
        pointers = np.array([a.ctypes.data for a in views] + [0] * len(values), np.uint64)
        for place, value in enumerate(values, len(views)):
            pointers[place : place + 1].view(np.uint8)[: value.nbytes] = value.view(np.uint8)
        self._args.append(pointers)
        self._views += views
        waits = not self._wave.takes(
            *([bytes_of(v) for v, w in arguments if w is written] for written in (False, True))
        )
        self._rows.append((self._objects.address(symbol), pointers.ctypes.data, tasks, waits or self._waits))
        self._waits = False

    def add_table(self, rows: NDArray[np.int64], args: NDArray[np.uint64]) -> None:
        """Append commands that are rows already, the first of which waits; ``args``: the memory of their arguments."""
        assert "job" not in self.__dict__, "the list has run"
        self._tables += [np.array(self._rows, np.int64).reshape(-1, 4), rows]
        self._rows.clear()
        self._args.append(args)
        self._wave, self._waits = Wave(), True

    @cached_property
    def job(self) -> Job:
        """The kernels in executable form; a kernel waits for another one if either writes memory that the other
        accesses."""
        rows = np.array(self._rows, np.int64).reshape(-1, 4)
        return Job(self._objects, np.concatenate([*self._tables, rows]) if self._tables else rows)


class Job:
    """A list's commands, i64 [commands, 4], and the code that runs them. ``tasks``: their total; ``wide``: worth
    helpers."""

    def __init__(self, objects: Objects, table: NDArray[np.int64]) -> None:
        self.objects, self.table = objects, table
        self.call = _RUN(objects.driver)
        self.tasks = int(table[:, 2].sum())
        self.wide = int(table[table[:, 2] > 1, 2].sum()) >= _WORTH
        #: Runs the commands without helpers, as one C function.
        self.alone: Call = partial(self.call, table.ctypes.data, len(table), None, 0, 0, 1)


class Steps:
    """Steps to run in order, with the process's team if that pays off. If all of them are lists or C functions, no
    interrupt comes between them."""

    def __init__(self, steps: Sequence[Call | CommandList]) -> None:
        self._steps = [step.job if isinstance(step, CommandList) else step for step in steps]
        self._wide = any(isinstance(step, Job) and step.wide for step in self._steps)
        self._alone = [step.alone if isinstance(step, Job) else step for step in self._steps]

    def run(self, change: Change | None = None) -> None:
        """``change``: its ``begin`` and ``end`` are called before and after the steps."""
        steps = self._steps if self._wide else self._alone
        if change is not None:
            steps = [change.begin, *steps, change.end]
        if self._wide:
            team().run(steps)
        elif steps:
            unbroken(steps)  # type: ignore[arg-type]


def bytes_of(view: NDArray[Any]) -> range:
    """The address range of a dense view."""
    return range(view.ctypes.data, view.ctypes.data + view.nbytes)


class Wave:
    """The memory that kernels access between two waits."""

    def __init__(self) -> None:
        self._read: list[range] = []
        self._written: list[range] = []

    def takes(self, reads: Sequence[range], writes: Sequence[range]) -> bool:
        """True if a kernel may run concurrently with those of the wave; if not, it starts a new wave."""
        known = (*self._read, *self._written)
        concurrent = not (_meet(reads, self._written) or _meet(writes, known)) and len(known) <= _WIDEST_WAVE
        if not concurrent:
            self._read.clear()
            self._written.clear()
        self._read += reads
        self._written += writes
        return concurrent


def _meet(these: Sequence[range], those: Sequence[range]) -> bool:
    return any(a.start < b.stop and b.start < a.stop for a in these for b in those)


class Team:
    """``threads`` threads: the caller and helpers, which start with the first list that is large enough.

    Only one caller at a time has the helpers; a caller that finds them busy runs its lists alone.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._busy = Turn()
        self._wake: list[SimpleQueue[tuple[Job, int]]] = []
        give = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
        assert give is not None
        # shared by the driver: {tasks done, the address of sched_yield}, and a cache line for each thread
        self._block = np.zeros((threads + 2) * _LINE, np.int64)
        self._shared = self._block[-self._block.ctypes.data // 8 % _LINE :]
        self._shared[1] = give

    def run(self, steps: Sequence[Call | Job]) -> None:
        """Run the steps in order; wide jobs with the helpers, if nobody else has them."""
        with self._busy.hold_now() as scope, scope as ours:
            helped = ours and self.threads > 1
            if helped:
                self._start()
            calls: list[Call] = []
            base = int(self._shared[0])  # no job of ours is running, so the count is stable
            for step in steps:
                if not isinstance(step, Job):
                    calls.append(step)
                elif not helped or not step.wide:
                    calls.append(step.alone)
                else:
                    calls += self._together(step, base)
                    base += step.tasks
            # The caller always runs a job that was given to helpers, too, and waits for its end.
            unbroken(calls)

    def _together(self, job: Job, base: int) -> Iterator[Call]:
        """C functions that wake the helpers with a job and run it."""
        for queue in self._wake:
            yield partial(queue.put, (job, base))
        yield partial(job.call, job.table.ctypes.data, len(job.table), self._shared.ctypes.data, base, 0, self.threads)

    def _start(self) -> None:
        while len(self._wake) < self.threads - 1:
            queue: SimpleQueue[tuple[Job, int]] = SimpleQueue()
            lane = len(self._wake) + 1
            helper = threading.Thread(target=self._help, args=(lane, queue), name=f"dslc-{lane}", daemon=True)
            helper.start()  # before it is counted: if no thread can be started, the next call tries again
            self._wake.append(queue)

    def _help(self, lane: int, queue: SimpleQueue[tuple[Job, int]]) -> None:
        shared = self._shared.ctypes.data
        while True:
            job, base = queue.get()
            while not queue.empty():  # the caller has finished the earlier ones long ago
                job, base = queue.get()
            job.call(job.table.ctypes.data, len(job.table), shared, base, lane, self.threads)
            # The caller may finish and release code and table while this thread still uses them, so this thread keeps
            # its own references until it has left.
            del job


def thread_count() -> int:
    """``DSLC_THREADS``, else the number of processors available to this process. InputError R105 if out of range."""
    asked = os.environ.get("DSLC_THREADS")
    if asked is None:
        return min(MOST_THREADS, len(os.sched_getaffinity(0)))
    if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked) <= MOST_THREADS:
        raise InputError(
            "R105",
            f"DSLC_THREADS is {asked[:40]!r}",
            place="DSLC_THREADS",
            help=f"set it to a number from 1 to {MOST_THREADS}",
        )
    return int(asked)


class _Process:
    """The state of this process; a forked child, which has none of its parent's threads, gets its own."""

    def __init__(self) -> None:
        self.teams: dict[int, Team] = {}


_process = _Process()


def team() -> Team:
    """The process's team."""
    found = _process.teams.get(0)
    return found if found is not None else _process.teams.setdefault(0, Team(thread_count()))


def _forget() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_forget)
