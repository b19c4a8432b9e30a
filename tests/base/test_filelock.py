"""Locks between processes and threads: one holder, no ghosts, no waiting beyond the time."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from interruption.interrupts import count, strike

from dslc.base import filelock
from dslc.base.errors import ResourceError
from dslc.base.filelock import FileLock

HOLD = """
import sys, time
from dslc.base.filelock import FileLock
lock = FileLock(sys.argv[1], what="build")
assert lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_one_holder_and_its_name(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, what="build") as lock:
        assert lock.held and lock.holder() == os.getpid()
        with pytest.raises(ResourceError) as caught, FileLock(path, what="build"):
            pass
        assert caught.value.code == "R404" and caught.value.message == f"build by pid {os.getpid()} running"
    assert not lock.held and not path.exists()
    lock.release()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        start = time.monotonic()
        assert not FileLock(path, what="build").acquire(timeout=0.2)
        assert 0.15 < time.monotonic() - start < 30  # the holder sleeps for 60 s
        with pytest.raises(ResourceError) as caught, FileLock(path, what="tuner"):
            pass
        assert caught.value.message == f"tuner by pid {process.pid} running"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert path.exists()
    with FileLock(path, what="build", timeout=5) as lock:
        assert lock.holder() == os.getpid()
    assert not path.exists()


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    """Each adds one by reading and writing: without exclusion, additions are lost."""
    count = [0]

    def add() -> None:
        for _ in range(20):
            with FileLock(tmp_path / "lock", what="test", timeout=60):
                seen = count[0]
                time.sleep(0.0005)
                count[0] = seen + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == [80] and os.listdir(tmp_path) == []


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "another holder"])
def test_a_file_that_is_removed_while_its_lock_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """The holder releases between the open and the flock of the next: the flock of a file without a name excludes
    nobody, so the name is locked from scratch."""
    path = tmp_path / "lock"
    holder, later, mine = (FileLock(path, what="build") for _ in range(3))
    assert holder.acquire()
    real, calls = filelock.try_flock, []

    def late(fd: int) -> bool:
        if not calls:
            calls.append(fd)
            holder.release()
            if comes_back:
                monkeypatch.setattr(filelock, "try_flock", real)
                assert later.acquire()
        return real(fd)

    monkeypatch.setattr(filelock, "try_flock", late)
    assert mine.acquire(timeout=0.2) is not comes_back
    assert calls and path.exists() and path.read_text() == f"{os.getpid()}\n"
    assert not FileLock(path, what="build").acquire(), "two holders"
    mine.release()
    later.release()
    assert not path.exists()


def test_the_name_of_a_dead_holder_is_written_over_whole(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"9" * 30 + b"\n")
    with FileLock(tmp_path / "lock", what="build") as lock:
        assert lock.holder() == os.getpid() and (tmp_path / "lock").read_bytes() == b"%d\n" % os.getpid()


def test_waiting_costs_no_processor_time(tmp_path: Path, allowed: Callable[[float, float], bool]) -> None:
    with FileLock(tmp_path / "lock", what="build"):
        start, wall = time.process_time(), time.monotonic()
        assert not FileLock(tmp_path / "lock", what="build").acquire(timeout=0.5)
        assert time.monotonic() - wall >= 0.45
        assert allowed(time.process_time() - start, 0.1)


def test_releasing_leaves_a_file_of_another_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    mine, other = FileLock(path, what="build"), FileLock(path, what="build")
    assert mine.acquire()
    path.unlink()
    assert other.acquire()
    mine.release()
    assert path.exists() and not FileLock(path, what="build").acquire()
    other.release()


def test_where_no_lock_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "missing" / "lock", tmp_path / "link"):
        with pytest.raises(ResourceError) as caught, FileLock(path, what="build"):
            pass
        assert caught.value.code == "R402"
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_told_from_a_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dslc.base.filelock.os.open", full)
    with pytest.raises(ResourceError, match="No space left") as caught, FileLock(tmp_path / "lock", what="build"):
        pass
    assert caught.value.help and caught.value.help.startswith("free some space")


def test_a_lock_file_that_names_nobody(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", what="build")
    assert lock.holder() is None
    (tmp_path / "lock").write_bytes(b"not a number")
    assert lock.holder() is None


@pytest.mark.parametrize("free", [True, False], ids=["free", "held by another"])
def test_an_interrupt_at_any_point_leaves_no_lock(free: bool, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    rival = FileLock(path, what="build")

    def hold() -> None:
        lock = FileLock(path, what="build")
        with contextlib.suppress(ResourceError), lock.scope() as scope, scope:
            pass

    points = count(hold, opcodes=True)
    assert points > 200
    for number in range(1, points + 1):
        if not free:
            assert rival.acquire()
        found = strike(hold, number, opcodes=True)
        assert path.exists() is not free, found.struck
        rival.release()
        assert os.listdir(tmp_path) == [], found.struck
        with FileLock(path, what="build"):
            pass
