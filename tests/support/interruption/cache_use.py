"""A process that uses a cache, to be killed: ``python cache_use.py KIND FOLDER``."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from dslc.base.cache import Cache
from dslc.base.cache_entry import key_of, name_of
from dslc.base.failpoint import fail

KEYS = ("one", "two", "three")


def payload(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest() * 400


def use(folder: Path) -> list[bytes]:
    """A run: two entries, one of which is there, and an eviction."""
    cache = Cache(folder, limit=30_000)
    return [cache.fetch("fault", (key,), lambda key=key: payload(key)) for key in KEYS]


class Naive:
    """What the cache is there to replace: every harness must catch it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def fetch(self, key: str) -> bytes:
        path = self.folder / name_of("fault", key_of("fault", (key,)))
        if not path.exists():
            with path.open("wb", buffering=0) as file:
                half = len(payload(key)) // 2
                fail("naive.write")
                file.write(payload(key)[:half])
                fail("naive.write")
                file.write(payload(key)[half:])
        return path.read_bytes()


def use_naive(folder: Path) -> list[bytes]:
    return [Naive(folder).fetch(key) for key in KEYS]


RUNS: dict[str, Callable[[Path], list[bytes]]] = {"cache": use, "naive": use_naive}

if __name__ == "__main__":
    assert RUNS[sys.argv[1]](Path(sys.argv[2])) == [payload(key) for key in KEYS]
    os._exit(0)
