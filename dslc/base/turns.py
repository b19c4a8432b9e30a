"""Mutual exclusion that an interrupt cannot break.

Ctrl-C raises KeyboardInterrupt between any two steps of Python code: after a lock is taken but before that is recorded,
or at the end of a ``with`` before the lock is released. Hence three rules:

- Taking and recording the holder are one step, ``dict.setdefault``, during which nothing can be raised.
- A release may be repeated, and two nested scopes do so: ``with turn.hold() as scope, scope: ...``. An interrupt at any
  point skips at most one of the two.
- A waiting thread checks again from time to time, so a lost wake-up costs only a moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import call
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
_LOOK: Final = 0.5  # seconds after which a waiting thread checks again without a wake-up


def unbroken(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Call one function after the other and return their results. If all are C functions, or partials of these, no
    interrupt comes between them: it is raised after the last one."""
    return list(map(call, calls))


class Turns:
    """Numbered things; each has at most one holder at a time."""

    def __init__(self) -> None:
        self.holders: dict[int, Hold[Any]] = {}
        self._waiting: deque[threading.Lock] = deque()

    def take(self, key: int, hold: Hold[Any]) -> bool:
        """True if ``hold``, whose ``keys`` must include the key, has the thing now."""
        return self.holders.setdefault(key, hold) is hold

    def release(self, hold: Hold[Any]) -> None:
        """Release everything that it holds; does nothing if it holds nothing."""
        holders = self.holders
        for key in hold.keys:
            if holders.get(key) is hold:
                holders.pop(key)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Make all waiting threads check again."""
        while self._waiting:
            try:
                self._waiting.popleft().release()
            except IndexError:  # another thread was faster
                return

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready`` is true; it is checked after every release."""
        while not ready():
            signal = threading.Lock()
            signal.acquire()
            self._waiting.append(signal)
            if ready():  # released before our wait was registered
                return
            signal.acquire(timeout=_LOOK)


class Hold(Generic[T]):
    """The inner scope: entering it waits for ``take`` and yields its result.

    ``keys``: everything that it may hold, set before it is taken; ``thread``: the requesting thread.
    """

    __slots__ = ("_take", "_turns", "keys", "thread")

    def __init__(self, turns: Turns, take: Callable[[Hold[T]], T], keys: Sequence[int] = ()) -> None:
        self._turns, self._take, self.keys = turns, take, keys
        self.thread = threading.get_ident()

    def release(self) -> None:
        self._turns.release(self)

    def __enter__(self) -> T:
        return self._take(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns.release(self)


class Scope(Generic[T]):
    """The outer scope: it takes nothing, and releases what an interrupt kept the inner scope from releasing."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold[T]) -> None:
        self._hold = hold

    def __enter__(self) -> Hold[T]:
        return self._hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hold.release()


class Always:
    """``with Always(release), Always(release): ...`` calls a function at the end that may be called again: twice, so
    that an interrupt skips at most one of the calls."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], object]) -> None:
        self._release = release

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()


class Turn:
    """A lock: ``with turn.hold() as scope, scope: ...``. Not re-entrant."""

    def __init__(self) -> None:
        self._turns = Turns()

    def hold(self) -> Scope[None]:
        """Waits for the lock."""
        return Scope(Hold(self._turns, self._wait, (0,)))

    def hold_now(self) -> Scope[bool]:
        """Does not wait; yields whether the lock was free."""
        return Scope(Hold(self._turns, partial(self._turns.take, 0), (0,)))

    def _wait(self, hold: Hold[None]) -> None:
        self._turns.until(lambda: self._turns.take(0, hold))
