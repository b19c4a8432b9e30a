"""A private folder of compiled code, so that nothing is compiled twice: one file per entry, verified on every read.

The folder is ``$DSLC_CACHE_DIR``, else ``$XDG_CACHE_HOME/dslc``, else ``~/.cache/dslc``; ``DSLC_CACHE_DIR=off``
disables it. Only its owner may be able to write to it, because code that others put there would run as the owner. A
fault of the cache never fails the work: it is reported once, as warning W002, and the work continues without the cache.

An entry is found by the SHA-256 of everything that determines its content, so it is never stale. Recency of use is
counted in runs, not by the clock: the file's modification time holds the number of the run.
"""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dslc.base.cache_entry import LARGEST, OVERHEAD, Field, key_of, lock_of, name_of, pack, unpack
from dslc.base.cache_folder import (
    MOST_RUNS,
    SECOND,
    Stored,
    check_folder,
    default_folder,
    mark,
    private,
    read_all,
    stored_in,
    tidy,
)
from dslc.base.errors import DslcWarning, ResourceError
from dslc.base.failpoint import fail
from dslc.base.filelock import FileLock, leads_to
from dslc.base.opened import Opened
from dslc.base.publish import publish_bytes
from dslc.base.turns import Turn

DEFAULT_LIMIT: Final = 1024  # MiB
#: Seconds to wait for another process that compiles the same entry without progress: it may be stopped, and compiling
#: twice costs little.
PATIENCE: Final = 2.0
_KEPT: Final = 0.75  # fraction of the limit that an eviction keeps
_COUNTER: Final = "runs"  # an empty file whose modification time is the number of the last run


@dataclass
class Counts:
    """Statistics of a cache. ``compiled`` counts ``put``: work that was done because an entry was missing."""

    hits: int = 0
    misses: int = 0
    compiled: int = 0
    faults: int = 0
    evicted: int = 0

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Claim:
    """The right to compile one entry: ``with claim, claim: claim.take()`` releases it at the end, even if an interrupt
    skips one of the two releases."""

    def __init__(self, cache: Cache, lock: FileLock | None) -> None:
        self._cache, self._lock = cache, lock

    def take(self, timeout: float = 0.0) -> bool:
        """Try for ``timeout`` seconds; False while another process has it. Call ``Cache.get`` again after success. If
        no lock is available, all processes have the right: the work may be done twice, without other harm."""
        return self._lock is None or self._cache._locked(self._lock, timeout)

    def release(self) -> None:
        """May be repeated."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Cache:
    """``Cache.open()`` is this user's cache; ``Cache(None)`` stores nothing. Safe to share between threads.

    ``kind`` is the kind of an entry, ``fields`` are everything that determines its payload: source or description,
    options, target, versions. ``limit`` is in bytes.
    """

    def __init__(self, folder: Path | None, limit: int = DEFAULT_LIMIT << 20) -> None:
        self.folder = folder
        self.limit = limit
        self.counts = Counts()
        self._guard = Turn()
        self._writable = folder is not None
        self._warned = False
        self._run: int | None = None
        self._total: int | None = None  # bytes of all entries known to this process
        if folder is not None:
            try:
                check_folder(folder)
            except OSError as error:
                self.folder, self._writable = None, False
                self._fault(f"the cache {folder} is not used: {_reason(error).lower()}")

    @classmethod
    def open(cls, *, existing: bool = False) -> Cache:
        """The cache that the environment selects. ``existing``: no cache if its folder does not exist yet."""
        text = os.environ.get("DSLC_CACHE_DIR", "")
        if text == "off":
            return cls(None)
        folder = Path(text) if text else default_folder()
        if existing and not folder.is_dir():
            return cls(None)
        limit = os.environ.get("DSLC_CACHE_MIB", "") or str(DEFAULT_LIMIT)
        cache = cls(None)
        if not folder.is_absolute():
            cache._fault(f"the cache {folder} is not used: it is not an absolute path")
        elif not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            cache._fault(f"the cache {folder} is not used: DSLC_CACHE_MIB is {limit[:40]!r}, not a number of MiB")
        else:
            cache = cls(folder, int(limit) << 20)
        return cache

    def get(self, kind: str, fields: Sequence[Field], *, again: bool = False) -> bytes | None:
        """The payload of an entry; None if it is missing, or damaged, in which case it is removed.

        ``again``: a second lookup after a wait, which does not count as another miss.
        """
        found = self._look(kind, fields)
        with self._guard.hold() as scope, scope:
            self.counts.hits += found is not None
            self.counts.misses += found is None and not again
        return found

    def knows(self, kind: str, fields: Sequence[Field]) -> bool:
        """True if a valid entry exists; counts neither as a hit nor as a miss."""
        return self._look(kind, fields) is not None

    def _look(self, kind: str, fields: Sequence[Field]) -> bytes | None:
        if self.folder is None:
            return None
        try:
            key = key_of(kind, fields)
            return self._read(self.folder / name_of(kind, key), key)
        except OSError as error:
            self._fault(f"the cache {self.folder} cannot be read: {_reason(error)}")
            return None

    def put(self, kind: str, fields: Sequence[Field], payload: bytes, *, keep: bool = True) -> None:
        """Store compiled code. A failure does not affect the caller. ``keep=False`` only counts it, for code that
        another compilation may not reproduce."""
        with self._guard.hold() as scope, scope:
            self.counts.compiled += 1
        if keep:
            self.note(kind, fields, payload)

    def note(self, kind: str, fields: Sequence[Field], payload: bytes = b"") -> None:
        """``put`` for a payload that took no work."""
        if self.folder is None or not self._writable or len(payload) > LARGEST:
            return
        key = key_of(kind, fields)
        data = pack(key, payload)
        try:
            run = self._this_run(self.folder)
            publish_bytes(
                self.folder / name_of(kind, key), data, point="cache", private=True, tidy=False,
                verify=lambda temp: mark(temp, run), durable=False,  # each entry has its digest
            )  # fmt: skip
            self._make_room(self.folder, len(data))
        except (ResourceError, OSError) as error:
            # One fault is enough: the next write would wait for the same disk.
            self._writable = False
            self._fault(f"the cache {self.folder} cannot be written: {_reason(error)}")

    def claim(self, kind: str, fields: Sequence[Field]) -> Claim:
        """The right to compile an entry, which is still to be taken."""
        if self.folder is None or not self._writable:
            return Claim(self, None)
        name = lock_of(name_of(kind, key_of(kind, fields)))
        return Claim(self, FileLock(self.folder / name, what="compilation"))

    def _locked(self, lock: FileLock, timeout: float) -> bool:
        try:
            fail("cache.lock")
            return lock.acquire(timeout)
        except OSError as error:
            if error.errno != errno.ENOLCK:  # an entry without a lock may be compiled twice, but can still be stored
                self._writable = False
                self._fault(f"the cache {self.folder} does not support locks: {_reason(error)}")
            return True

    def fetch(self, kind: str, fields: Sequence[Field], make: Callable[[], bytes], timeout: float = PATIENCE) -> bytes:
        """The payload of an entry; if missing, one process makes it by ``make`` while the others wait."""
        found = self.get(kind, fields)
        if found is None:
            claim = self.claim(kind, fields)
            with claim, claim:
                claim.take(timeout)
                found = self.get(kind, fields, again=True)
                if found is None:
                    found = make()
                    self.put(kind, fields, found)
        return found

    def entries(self) -> list[Stored]:
        """Every entry, least recently used first."""
        return [] if self.folder is None else stored_in(self.folder)

    def clear(self) -> tuple[int, int]:
        """Remove every entry and the files of dead processes: (entries, their bytes). OSError if one cannot be
        removed."""
        if self.folder is None:
            return 0, 0
        listed = self.entries()
        for entry in listed:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / entry.name)
        tidy(self.folder)
        self._total = None
        return len(listed), sum(entry.bytes for entry in listed)

    def _read(self, path: Path, key: bytes) -> bytes | None:
        with Opened() as scope, scope as files:
            try:
                fail("cache.read")
                fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                return None
            status = os.fstat(fd)
            sound = stat.S_ISREG(status.st_mode) and private(status)
            data = read_all(fd, status.st_size) if sound and status.st_size <= LARGEST + OVERHEAD else b""
            payload = unpack(data, key)
            if payload is not None:
                with suppress(OSError):  # a read-only folder still gives hits
                    mark(fd, self._this_run(path.parent))
                return payload
            fail("cache.unlink")
            if leads_to(str(path), fd) and not stat.S_ISDIR(status.st_mode):  # else it was written again
                os.unlink(path)
        self._fault(f"a damaged cache entry was rebuilt: {path}")
        return None

    def _this_run(self, folder: Path) -> int:
        """The number of this run: one more than the last. Two processes may get the same number, which does no harm."""
        with self._guard.hold() as scope, scope:
            if self._run is None:
                with Opened() as outer, outer as files:
                    fd = files.open(folder / _COUNTER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
                    last = os.fstat(fd).st_mtime_ns // SECOND
                    run = last + 1 if 0 <= last < MOST_RUNS - 1 else 1
                    mark(fd, run)
                self._run = run
            return self._run

    def _make_room(self, folder: Path, added: int) -> None:
        """After a write: evict the least recently used entries if the total exceeds the limit."""
        with self._guard.hold() as scope, scope:
            first = self._total is None
            self._total = sum(entry.bytes for entry in self.entries()) if self._total is None else self._total + added
            full = self._total > self.limit
        if first:
            tidy(folder)
        if full:
            # Another process that evicts now does the same work.
            lock = FileLock(folder / ".evict.lock", what="eviction")
            with lock.scope(), lock.scope():
                if lock.acquire():
                    self._evict(folder)

    def _evict(self, folder: Path) -> None:
        listed = self.entries()
        total = sum(entry.bytes for entry in listed)
        for entry in listed:
            if total <= _KEPT * self.limit:
                break
            fail("cache.evict")
            with suppress(FileNotFoundError):
                os.unlink(folder / entry.name)
                self.counts.evicted += 1
            total -= entry.bytes
        self._total = total

    def _fault(self, what: str) -> None:
        with self._guard.hold() as scope, scope:
            self.counts.faults += 1
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(DslcWarning("W002", what), stacklevel=4)


def _reason(error: OSError | ResourceError) -> str:
    return error.message if isinstance(error, ResourceError) else error.strerror or str(error)
