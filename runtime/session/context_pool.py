"""A bounded pool of contexts: a run takes one context, a change of the state takes them all.

An interrupt never leaves a context taken; ``dslc.base.turns`` explains how, and why each ``with`` has two scopes.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Generic, TypeVar

from dslc.base.errors import ArtifactError, InputError
from dslc.base.turns import Hold, Scope, Turns

T = TypeVar("T")
_ALONE: Final = -1  # an exclusive caller takes this key first; otherwise two of them could deadlock


def closed_error(call: str | None = None) -> ArtifactError:
    """R309; ``call`` names the call that was made on the closed session."""
    return ArtifactError("R309", "the session is closed", place=call, help="load the artifact again")


class Pool(Generic[T]):
    """``with pool.shared() as scope, scope as context`` lends one context; ``exclusive`` takes all and yields one.

    Callers wait while none is free; a thread that would wait for itself gets R105. After ``closing`` is entered, all
    waiting and later callers get R309.
    """

    def __init__(self, contexts: list[T]) -> None:
        self._all = tuple(contexts)
        self._turns = Turns()
        self._closed = False

    @property
    def any(self) -> T:
        """One of the contexts, for inspection only."""
        return self._all[0]

    @property
    def closed(self) -> bool:
        return self._closed

    def shared(self) -> Scope[T]:
        """Takes one context; other callers may run concurrently."""
        return Scope(Hold(self._turns, self._take_one))

    def one(self, number: int) -> Scope[T]:
        """Takes the context with this number, modulo their number."""
        number %= len(self._all)
        return Scope(Hold(self._turns, partial(self._take_this, number), (number,)))

    def exclusive(self, number: int = 0) -> Scope[T]:
        """Takes all contexts, so that nobody else runs, and yields the one with this number, modulo their number."""
        chosen = self._all[number % len(self._all)]
        return Scope(Hold(self._turns, partial(self._take_all, chosen), range(_ALONE, len(self._all))))

    def closing(self) -> Scope[T]:
        """``exclusive`` for the first or a repeated close: later callers are refused from then on."""
        return Scope(Hold(self._turns, self._take_last, range(_ALONE, len(self._all))))

    def _take_one(self, hold: Hold[T]) -> T:
        self._refuse_own(_ALONE, hold)
        if not self._one(hold):
            self._turns.until(lambda: self._closed or self._one(hold))
        if self._closed:
            raise closed_error()
        return self._all[hold.keys[0]]

    def _take_this(self, number: int, hold: Hold[T]) -> T:
        self._refuse_own(_ALONE, hold)
        if not self._this(number, hold):
            self._turns.until(lambda: self._closed or self._this(number, hold))
        if self._closed:
            raise closed_error()
        return self._all[number]

    def _one(self, hold: Hold[T]) -> bool:
        numbers = range(len(self._all))
        for number in numbers:
            hold.keys = (number,)
            if self._turns.take(number, hold):
                return True
        mine = [holder is not None and holder.thread == hold.thread for holder in map(self._turns.holders.get, numbers)]
        if all(mine):
            raise _own_call()
        return False

    def _take_all(self, chosen: T, hold: Hold[T]) -> T:
        for key in hold.keys:
            if not self._this(key, hold):
                self._turns.until(lambda key=key: self._closed or self._this(key, hold))  # type: ignore[misc]
            if self._closed:
                raise closed_error()
        return chosen

    def _take_last(self, hold: Hold[T]) -> T:
        for key in hold.keys:
            self._refuse_own(key, hold)
        self._closed = True
        self._turns.wake()
        for key in hold.keys:
            self._turns.until(lambda key=key: self._this(key, hold))  # type: ignore[misc]
        return self._all[0]

    def _this(self, key: int, hold: Hold[T]) -> bool:
        if self._turns.holders.setdefault(key, hold) is hold:
            return True
        self._refuse_own(key, hold)
        return False

    def _refuse_own(self, key: int, hold: Hold[T]) -> None:
        """Raises InputError R105 for a caller that would wait for itself."""
        holder = self._turns.holders.get(key)
        if holder is not None and holder.thread == hold.thread:
            raise _own_call()


def _own_call() -> InputError:
    return InputError(
        "R105", "a call of the session called the session again; `batches` must not use it during training steps",
        place="session", help="make the batches without the session, or run the steps with train_step",
    )  # fmt: skip
