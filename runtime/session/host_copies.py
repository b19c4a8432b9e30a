"""Copies of large arrays on the host, by several threads.

A thread copies slower than the bus of a GPU, and slower still into fresh memory, whose pages the operating system
clears first. A thread that sleeps begins late: so the caller begins at once, and whoever is awake takes the next part.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dslc.base.turns import Always
from dslc.runtime.session import fork

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Part: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

#: Bytes of a part, and threads next to the caller's. 19 MB to pinned memory and on to an H200 (16 cores, 2026-11-28,
#: `benchmarks/results/zoo.md`) take 0.96 ms with parts of 1 MiB and four threads, 1.21 with parts of half of it, for
#: whose beginnings threads wait for each other, 1.06 with eight threads, and 2.4 with one.
PART: Final = 1 << 20
_MOST: Final = 3
_LOOK: Final = 0.05  # seconds after which a waiting thread looks again


class _Task:
    """What a helper does for one copy: it takes parts until there are none."""

    def __init__(self, parts: deque[tuple[int, Part]], copied: deque[int]) -> None:
        self.begun = self.over = False
        self.error: Exception | None = None
        self._parts, self._copied = parts, copied
        self._ended = Lock()
        self._ended.acquire()

    def run(self) -> None:
        self.begun = True  # before a part is taken: see `Copy.end`
        try:
            while self._parts:
                _take(self._parts, self._copy)
        except Exception as error:  # noqa: BLE001  (`Copy.end` raises it)
            self.error = error
        self.over = True
        self._ended.release()

    def _copy(self, number: int, part: Part) -> None:
        np.copyto(*part, casting="no")
        self._copied.append(number)

    def wait(self) -> None:
        while not self.over:
            self._ended.acquire(timeout=_LOOK)


def _take(parts: deque[tuple[int, Part]], copy: Callable[[int, Part], object]) -> None:
    """Have the next part copied, if another thread has not taken the last one."""
    try:
        part = parts.popleft()
    except IndexError:
        return
    copy(*part)


class _Helper:
    """A thread that sleeps until there is a task. It waits for a lock: threads that wait for an executor's queue begin
    so late that two of them, on two cores, were no faster than one."""

    def __init__(self, idle: deque[_Helper]) -> None:
        self._idle = idle
        self._task: _Task | None = None
        self._asked = Lock()
        self._asked.acquire()
        Thread(target=self._run, name="dslc-copies", daemon=True).start()

    def ask(self, task: _Task) -> None:
        self._task = task
        self._asked.release()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            assert self._task is not None
            self._task.run()
            self._task = None
            self._idle.append(self)


class _Helpers:
    """The threads of a process."""

    def __init__(self) -> None:
        self.idle: deque[_Helper] = deque()
        self._made: list[_Helper] = []

    def ask(self, task: _Task) -> None:
        """Have a thread do a task, unless all are busy."""
        try:
            helper = self.idle.pop()
        except IndexError:
            if len(self._made) >= _MOST:
                return
            helper = _Helper(self.idle)
            self._made.append(helper)
        helper.ask(task)


#: By ``fork.generation()``: a child has none of its parent's threads.
_helpers: dict[int, _Helpers] = {}


def _nothing(number: int) -> None:
    pass


def copy_parts(
    parts: Sequence[Part],
    done: Callable[[int], object] = _nothing,
    here: Callable[[int, Part], object] | None = None,
) -> None:
    """Copies parts, targets and sources of equal dtypes and shapes; ``done`` is called with the number of each copied
    one, in this thread. ``here``: what this thread does with a part that falls to it, instead of both. Nothing is
    copied any more when this ends, also after an interrupt, as the caller may reuse the arrays."""
    left, copied = deque(enumerate(parts)), deque[int]()
    tasks = [_Task(left, copied) for _ in range(min(len(parts), _MOST + 1, len(os.sched_getaffinity(0))) - 1)]

    def copy_here(number: int, part: Part) -> None:
        np.copyto(*part, casting="no")
        copied.append(number)

    def tell() -> None:
        while copied:
            done(copied.popleft())

    def end() -> None:
        left.clear()
        for task in tasks:
            if task.begun:
                task.wait()

    with Always(end), Always(end):
        helpers = _helpers.setdefault(fork.generation(), _Helpers())
        for task in tasks:
            helpers.ask(task)
        while left:
            _take(left, here or copy_here)
            tell()
        for task in tasks:
            if task.begun:  # else it finds nothing left
                task.wait()
                tell()
    for error in (task.error for task in tasks if task.error is not None):
        raise error


def copy_into(target: NDArray[Any], source: NDArray[Any]) -> None:
    """``np.copyto(target, source, casting="no")``. TypeError for another dtype, ValueError for another shape."""
    parts = () if target.nbytes < 2 * PART else parts_of(target, source)
    if len(parts) < 2:
        np.copyto(target, source, casting="no")
    else:
        copy_parts(parts)


def parts_of(target: NDArray[Any], source: NDArray[Any]) -> Sequence[Part]:
    """Both arrays in parts of at least ``PART`` bytes, from the first byte to the last; one if they are small, or no
    dense arrays of one dtype and shape."""
    count = target.nbytes // PART
    if count < 2 or not dense(target, source):
        return [(target, source)]
    flat = target.reshape(-1), source.reshape(-1)
    ends = [target.size * n // count for n in range(count + 1)]
    return [(flat[0][a:b], flat[1][a:b]) for a, b in pairwise(ends)]


def dense(target: NDArray[Any], source: NDArray[Any]) -> bool:
    """True if a copy of one to the other is a copy of consecutive bytes."""
    same = target.shape == source.shape and target.dtype == source.dtype
    return same and target.flags.c_contiguous and source.flags.c_contiguous


def copies(arrays: Iterable[tuple[str, NDArray[Any]]], rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Copies of named arrays, of those in ``rows`` of so many first rows."""
    return {name: copied(array[: rows[name]] if name in rows else array) for name, array in arrays}


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in row-major order."""
    out = np.empty(array.shape, array.dtype)
    copy_into(out, array)
    return out
