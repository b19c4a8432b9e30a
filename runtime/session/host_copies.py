"""Copies of large arrays on the host, by several threads.

A thread copies slower than the bus of a GPU, and slower still into fresh memory, whose pages the operating system
clears first.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from dslc.runtime.session import fork

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

#: Bytes of a part: smaller ones are copied before another thread has begun, which takes 20 us.
_PART: Final = 1 << 19
_MOST: Final = 8  # threads: more do not copy faster than memory


class _Helper:
    """A thread that copies parts. It waits for a lock: threads that wait for an executor's queue begin so late that two
    of them, on two cores, were no faster than one."""

    def __init__(self) -> None:
        self._asked, self._done = Lock(), Lock()
        self._asked.acquire()
        self._done.acquire()
        self._part: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._error: Exception | None = None
        Thread(target=self._run, name="dslc-copies", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            try:
                assert self._part is not None
                np.copyto(*self._part, casting="no")
            except Exception as error:  # noqa: BLE001  (`end` raises it)
                self._error = error
            self._part = None
            self._done.release()

    def begin(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        self._part = target, source
        self._asked.release()

    def end(self) -> Exception | None:
        """Wait for the part that was begun; what went wrong."""
        self._done.acquire()
        error, self._error = self._error, None
        return error


#: Threads that wait for work, by ``fork.generation()``: a child has none of its parent's.
_idle: dict[int, deque[_Helper]] = {}


def copy_into(target: NDArray[Any], source: NDArray[Any]) -> None:
    """``np.copyto(target, source, casting="no")``. TypeError for another dtype, ValueError for another shape."""
    parts = _parts(target, source) if target.nbytes >= 2 * _PART else ()
    if len(parts) < 2:
        np.copyto(target, source, casting="no")
        return
    with Aside() as aside:
        for part in parts[1:]:
            aside.begin(*part)
        np.copyto(*parts[0], casting="no")


class Aside:
    """Copies that other threads make meanwhile, as ``copy_into``; all are complete at the end of the ``with``, also
    after an interrupt, as the caller may reuse the arrays."""

    def __init__(self) -> None:
        self._idle = _idle.setdefault(fork.generation(), deque())
        self._begun: deque[_Helper] = deque()
        self._error: Exception | None = None

    def begin(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        """Begin a copy; waits for the oldest one if as many as may be are under way."""
        if len(self._begun) >= _MOST:
            self._end()
        helper = _next(self._idle)
        helper.begin(target, source)
        self._begun.append(helper)

    def _end(self) -> None:
        self._error = self._begun[0].end() or self._error
        self._idle.append(self._begun.popleft())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._begun:
            self._end()
        if self._error is not None and error is None:
            raise self._error


def _next(idle: deque[_Helper]) -> _Helper:
    try:
        return idle.pop()
    except IndexError:
        return _Helper()


def copies(arrays: Iterable[tuple[str, NDArray[Any]]], rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Copies of named arrays, of those in ``rows`` of so many first rows."""
    return {name: copied(array[: rows[name]] if name in rows else array) for name, array in arrays}


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in row-major order."""
    out = np.empty(array.shape, array.dtype)
    copy_into(out, array)
    return out


def _parts(target: NDArray[Any], source: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Both arrays in as many parts as threads copy; one if they are small, or no dense arrays of one shape."""
    count = min(target.nbytes // _PART, _MOST, len(os.sched_getaffinity(0)))
    if count < 2 or target.shape != source.shape or not (target.flags.c_contiguous and source.flags.c_contiguous):
        return [(target, source)]
    flat = target.reshape(-1), source.reshape(-1)
    ends = [target.size * n // count for n in range(count + 1)]
    return [(flat[0][a:b], flat[1][a:b]) for a, b in pairwise(ends)]
