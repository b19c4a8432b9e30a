"""The cache killed at every point and failing at every system call: the right bytes always, and at most a warning."""

from __future__ import annotations

import errno
import fcntl
import os
import warnings
from pathlib import Path

import pytest
from interruption.cache_use import KEYS, RUNS, Naive, payload
from interruption.injecting import Call, Injector, child, kill, passed
from places import SUPPORT

from dslc.base.cache import Cache
from dslc.base.cache_entry import LOCK
from dslc.base.errors import DslcWarning

pytestmark = pytest.mark.slow

SCRIPT = SUPPORT / "interruption" / "cache_use.py"


def prepared(folder: Path, kind: str) -> Path:
    """A cache that holds one of the entries."""
    if folder.exists():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    if kind == "naive":
        Naive(folder).fetch("two")
    else:
        Cache(folder).put("fault", ("two",), payload("two"))
    return folder


def kill_sweep(kind: str, tmp_path: Path) -> tuple[int, list[str]]:
    """(kills that fired, the points after which something was broken)."""
    log = tmp_path / "log"
    assert child(SCRIPT, (kind, prepared(tmp_path / "cache", kind)), log, "trace") == 0
    fired, broken = 0, []
    for point in passed(log):
        folder = prepared(tmp_path / "cache", kind)
        kill(SCRIPT, (kind, folder), log, point)
        fired += 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            right = RUNS[kind](folder) == [payload(key) for key in KEYS]
            if kind == "cache":
                Cache(folder).put("fault", ("another",), b"so that the dead are swept")
        left = [n for n in os.listdir(folder) if n.endswith(".tmp") or LOCK.fullmatch(n)]
        if not right or caught or left:
            broken.append(f"{point}: {'' if right else 'wrong bytes '}{[str(w.message) for w in caught]} {left}")
    return fired, broken


def test_killed_at_every_point(tmp_path: Path) -> None:
    fired, broken = kill_sweep("cache", tmp_path)
    print(f"{fired} kills")
    assert fired >= 18 and not broken, broken


def test_the_kill_sweep_can_fail(tmp_path: Path) -> None:
    fired, broken = kill_sweep("naive", tmp_path)
    assert fired == 4 and any("wrong bytes" in text for text in broken)


CALLS: tuple[Call, ...] = (
    (os, "open"), (os, "read"), (os, "write"), (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "lstat"),
    (os, "listdir"), (os, "stat"), (os, "fstat"), (os, "fstatvfs"), (os, "utime"), (os, "mkdir"),
    (os, "ftruncate"), (os, "pwrite"), (fcntl, "flock"),
)  # fmt: skip


def error_sweep(kind: str, tmp_path: Path, error: int) -> tuple[int, list[str]]:
    """Every call fails once: (faults fired, what was broken)."""
    broken: list[str] = []
    wanted = [payload(key) for key in KEYS]
    for number in range(1, 10_000):
        folder = prepared(tmp_path / "cache", kind)
        with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("always")
            injector = Injector(patch, CALLS, number, error)
            try:
                got = RUNS[kind](folder)
            except OSError as raised:
                got = [str(raised).encode()]
        if not injector.fired:
            return number - 1, broken
        where = f"call {number}, {injector.fired}"
        if got != wanted:
            broken.append(f"{where}: {got[0][:40]!r}")
        if len(caught) > 1 or any(w.category is not DslcWarning for w in caught):
            broken.append(f"{where}: {[str(w.message) for w in caught]}")
        with warnings.catch_warnings(record=True) as later:
            warnings.simplefilter("always")
            if RUNS[kind](folder) != wanted or later:
                broken.append(f"{where}: the next run: {[str(w.message) for w in later]}")
    raise AssertionError("the sweep never came to its end")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_an_error_at_every_call(error: int, tmp_path: Path) -> None:
    fired, broken = error_sweep("cache", tmp_path, error)
    print(f"{errno.errorcode[error]}: {fired} faults")
    assert fired >= 40 and not broken, broken


def test_the_error_sweep_can_fail(tmp_path: Path) -> None:
    _, broken = error_sweep("naive", tmp_path, errno.EIO)
    assert broken
