"""A bounded pool of contexts: who wants to run takes one, who wants to change the state takes them all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from dslc.base.errors import ArtifactError, InputError

T = TypeVar("T")


def closed_error(call: str | None = None) -> ArtifactError:
    """R309; ``call`` names what was asked of the closed session."""
    return ArtifactError("R309", "the session is closed", place=call, help="load the artifact again")


class Pool(Generic[T]):
    """``shared()`` lends one context, ``exclusive()`` waits for all of them and lends the first.

    Callers wait while none is free, but not for themselves. After ``close`` every waiting and later caller gets R309.
    """

    def __init__(self, contexts: list[T]) -> None:
        self._all = tuple(contexts)
        self._free = list(contexts)
        self._changed = threading.Condition()
        self._exclusive = threading.Lock()  # one exclusive caller collects at a time, or two could starve each other
        self._owner: int | None = None  # the thread of the exclusive caller
        self._alone = _Exclusive(self)
        self._closed = False

    @property
    def any(self) -> T:
        """One of the contexts, to be looked at, not used."""
        return self._all[0]

    @property
    def closed(self) -> bool:
        return self._closed

    def _take(self) -> T:
        with self._changed:
            while not self._free and not self._closed:
                self._changed.wait()
            if self._closed:
                raise closed_error()
            return self._free.pop()

    def _give(self, contexts: Sequence[T]) -> None:
        with self._changed:
            self._free.extend(contexts)
            self._changed.notify_all()

    def _refuse_owner(self) -> None:
        """InputError R105 for a caller that would wait for itself."""
        if self._owner == threading.get_ident():
            raise InputError(
                "R105", "the session is called while it takes training steps", place="train_steps",
                help="make the batches without the session, or take the steps with train_step",
            )  # fmt: skip

    @contextmanager
    def shared(self) -> Iterator[T]:
        """A context of one's own; others may run beside."""
        self._refuse_owner()
        context = self._take()
        try:
            yield context
        finally:
            self._give([context])

    def exclusive(self) -> _Exclusive[T]:
        """``with``: the first context while nobody else runs."""
        return self._alone

    def _take_all(self) -> T:
        self._refuse_owner()
        self._exclusive.acquire()
        taken: list[T] = []
        try:
            for _ in self._all:
                taken.append(self._take())
        except BaseException:
            self._give(taken)
            self._exclusive.release()
            raise
        self._owner = threading.get_ident()
        return self._all[0]

    def _give_all(self) -> None:
        self._owner = None
        self._give(self._all)
        self._exclusive.release()

    def close(self) -> bool:
        """Refuse new callers, wait for those that run; True for the call that closed it, False for any later one."""
        with self._changed:
            first, self._closed = not self._closed, True
            self._changed.notify_all()
            while len(self._free) < len(self._all):
                self._changed.wait()
        return first


class _Exclusive(Generic[T]):
    """A pool's exclusive use; a training step takes it each time, so it is one object."""

    def __init__(self, pool: Pool[T]) -> None:
        self._pool = pool

    def __enter__(self) -> T:
        return self._pool._take_all()

    def __exit__(self, *raised: object) -> None:
        self._pool._give_all()
