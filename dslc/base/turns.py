"""Taking turns so that an interrupt can break nothing.

Ctrl-C raises KeyboardInterrupt between any two steps of Python code: when a lock is taken and nobody has noted that
yet, or at the end of a ``with``, before the lock is released. Hence three rules:

- To take and to note who has taken are one step, ``dict.setdefault``, within which nothing can be raised.
- To release may be done again, and two nested scopes do it: ``with turn.hold() as scope, scope: ...``. Wherever an
  interrupt strikes, it cuts one of the two at most.
- Who waits looks again by itself now and then, so a call to wake up that is lost costs a moment.
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
_LOOK: Final = 0.5  # seconds after which who waits looks again unasked


def unbroken(calls: Iterable[Callable[[], object]]) -> None:
    """Call one after the other. Where all are C functions, or partials of such, no interrupt comes between them: it is
    raised when the last is over."""
    deque(map(call, calls), maxlen=0)


class Turns:
    """Things, by number, that one holder at a time has."""

    def __init__(self) -> None:
        self.holders: dict[int, Hold[Any]] = {}
        self._waiting: deque[threading.Lock] = deque()

    def take(self, key: int, hold: Hold[Any]) -> bool:
        """Whether ``hold``, which names the key among its own, has the thing now."""
        return self.holders.setdefault(key, hold) is hold

    def release(self, hold: Hold[Any]) -> None:
        """Give back whatever it has; nothing where it has nothing."""
        holders = self.holders
        for key in hold.keys:
            if holders.get(key) is hold:
                holders.pop(key)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        while self._waiting:
            try:
                self._waiting.popleft().release()
            except IndexError:  # another thread was quicker
                return

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready`` says yes, which is asked whenever something was released."""
        while not ready():
            signal = threading.Lock()
            signal.acquire()
            self._waiting.append(signal)
            if ready():  # released before it was known that we wait
                return
            signal.acquire(timeout=_LOOK)


class Hold(Generic[T]):
    """The inner scope: entering it waits for the thing, ``take``, and gives what that gives.

    ``keys``: all that it may have, set before it is taken; ``thread``: who asks.
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
    """The outer scope: it takes nothing, and releases what the inner one was kept from releasing."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold[T]) -> None:
        self._hold = hold

    def __enter__(self) -> Hold[T]:
        return self._hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hold.release()


class Turn:
    """A lock: ``with turn.hold() as scope, scope: ...``. Not for a thread that has it already."""

    def __init__(self) -> None:
        self._turns = Turns()

    def hold(self) -> Scope[None]:
        """Waits for it."""
        return Scope(Hold(self._turns, self._wait, (0,)))

    def hold_now(self) -> Scope[bool]:
        """Does not wait; gives whether it was free."""
        return Scope(Hold(self._turns, partial(self._turns.take, 0), (0,)))

    def _wait(self, hold: Hold[None]) -> None:
        self._turns.until(lambda: self._turns.take(0, hold))
