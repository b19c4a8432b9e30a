"""What was measured, by problem: each problem is measured once, however many threads and processes ask for it.

A result is stored in the private cache under everything that a time depends on. So a tuning that was stopped goes on,
and other processes of the user find it. The lock of a cache entry lets one process measure while the others wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from dslc.base.cache import Cache
from dslc.base.errors import BuildError
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import format_lock, parse_lock

_KIND: Final = "tuned"
_PATIENCE: Final = 900.0  # seconds to wait for another process that measures the same problem


class Registry:
    """``fields``: what times depend on besides the problem: GPU, versions, options. ``tuned`` counts the blocks that
    were measured here, ``found`` those that were there. Safe to share between threads."""

    def __init__(self, cache: Cache, fields: Sequence[str]) -> None:
        self._cache, self._fields = cache, tuple(fields)
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._blocks: dict[str, Block] = {}
        self.tuned = self.found = 0

    def find_or_register(self, key: str, tuner: Callable[[], Block], *, again: bool = False) -> Block:
        """The block of a problem, by ``tuner`` if nobody has measured it. ``again``: measure it even if it is stored,
        once for each registry. What the tuner raises is raised here, and the next one who asks tries again."""
        with self._guard:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            block = self._blocks.get(key)
            if block is None and not again:
                block = self._stored(key)
            if block is None:
                block = self._measured(key, tuner, again)
            else:
                self._count(found=1)
            self._blocks[key] = block
        return block

    def _measured(self, key: str, tuner: Callable[[], Block], again: bool) -> Block:
        """Measured by this process, unless another one has just done so."""
        claim = self._cache.claim(_KIND, self._entry(key))
        with claim, claim:
            claim.take(_PATIENCE)
            block = None if again else self._stored(key, again=True)
            if block is not None:
                self._count(found=1)
                return block
            block = tuner()
            self._cache.put(_KIND, self._entry(key), format_lock(Lock((block,))).encode())
            self._count(tuned=1)
        return block

    def stored(self, key: str) -> Block | None:
        """The block of a problem if it was measured before; does not wait and does not count."""
        return self._blocks.get(key) or self._stored(key)

    def _entry(self, key: str) -> tuple[str, ...]:
        return (*self._fields, key)

    def _stored(self, key: str, *, again: bool = False) -> Block | None:
        payload = self._cache.get(_KIND, self._entry(key), again=again)
        if payload is None:
            return None
        try:
            lock = parse_lock(payload, "the cache")
        except BuildError:  # by a version of dslc whose locks look different, but which calls itself the same
            return None
        return next((block for block in lock.blocks if block.key == key), None)

    def _count(self, tuned: int = 0, found: int = 0) -> None:
        with self._guard:
            self.tuned += tuned
            self.found += found
