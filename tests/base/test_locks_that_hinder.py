"""Partners that are stopped, and file systems without locks: a lock costs a moment or a second compilation, no more."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dslc.base import owner
from dslc.base.cache import Cache
from dslc.base.errors import ResourceError
from dslc.base.filelock import OWNER, FileLock
from dslc.base.publish import folder_lock, publish_bytes, publish_files, sweep
from dslc.base.temps.temp import TEMP

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
HOLD = """
import sys, time
from pathlib import Path
from dslc.base.cache import Cache
from dslc.base.publish import folder_lock
if sys.argv[1] == "claim":
    held = Cache(Path(sys.argv[2])).claim("test", ("key",))
    assert held.take()
else:
    held = folder_lock(Path(sys.argv[2]))
    assert held.acquire()
print("held", flush=True)
time.sleep(60)
"""


def holder(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that has a lock, and was stopped."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, kind, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    process.send_signal(signal.SIGSTOP)
    while not owner.stopped(process.pid):
        time.sleep(0.01)
    return process


def waits(patch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that this process asks to sleep from now on: a busy machine makes each sleep longer."""
    asked, real = [], time.sleep

    def noted(seconds: float) -> None:
        asked.append(seconds)
        real(seconds)

    patch.setattr(time, "sleep", noted)
    return asked


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_stopped_compilation_costs_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    Cache(folder)
    process = holder("claim", folder)
    try:
        waited = waits(monkeypatch)
        assert Cache(folder).fetch("test", ("key",), lambda: b"made twice") == b"made twice"
        assert sum(waited) < 2.5
    finally:
        end(process)


def test_a_stopped_build_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = holder("build", tmp_path)
    try:
        waited = waits(monkeypatch)
        with pytest.raises(ResourceError) as caught, folder_lock(tmp_path):
            pass
        assert sum(waited) < 1 and caught.value.code == "R404"
        assert f"build by pid {process.pid} running, and stopped" in caught.value.message
        assert f"kill -CONT {process.pid}" in str(caught.value.help)
    finally:
        end(process)
    with folder_lock(tmp_path):
        pass


@pytest.fixture(params=NO_LOCKS)
def lockless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flock is refused."""

    def refused(fd: int, how: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refused)


def test_without_locks_one_holds_it_all_the_same(lockless: None, tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock", what="build") as lock:
        assert lock.holder() == os.getpid()
        with pytest.raises(ResourceError) as caught, FileLock(tmp_path / "lock", what="build"):
            pass
        assert caught.value.code == "R404" and f"build by pid {os.getpid()} running" in caught.value.message
    assert os.listdir(tmp_path) == []


def test_without_locks_the_dead_hold_nothing(lockless: None, tmp_path: Path) -> None:
    text = owner.me().split()
    for dead in (["999999999", *text[1:]], [text[0], "1", *text[2:]], [*text[:2], "0" * 8, text[3]]):
        os.symlink(" ".join([*dead, "00"]), tmp_path / f"lock{OWNER}")
        with FileLock(tmp_path / "lock", what="build"):
            pass
        assert os.listdir(tmp_path) == []
    os.symlink(" ".join([*text[:3], "0" * 8, "00"]), tmp_path / f"lock{OWNER}")  # of another machine: nothing is known
    with pytest.raises(ResourceError, match="R404"), FileLock(tmp_path / "lock", what="build"):
        pass


def test_a_lock_of_either_kind_keeps_out_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", refused)
        without = FileLock(tmp_path / "lock", what="build")
        assert without.acquire()
    assert not FileLock(tmp_path / "lock", what="build").acquire()
    without.release()
    process = holder("build", tmp_path)
    try:
        monkeypatch.setattr(fcntl, "flock", refused)
        assert not folder_lock(tmp_path).acquire()
    finally:
        end(process)


def test_without_locks_everything_is_published_and_the_dead_are_swept(lockless: None, tmp_path: Path) -> None:
    publish_bytes(tmp_path / "a", b"1")
    publish_files(tmp_path, {"b": b"2", "c": b"3"}, "c")
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    text = owner.me().split()
    names = {
        kind: f".dslc-{'0' * 16}-{'-'.join(whose)}.tmp"
        for kind, whose in {"dead": ["999999999", *text[1:]], "living": text, "far": [*text[:3], "0" * 8]}.items()
    }
    for name in names.values():
        assert TEMP.fullmatch(name)
        (tmp_path / name).touch()
    assert sweep(tmp_path) == (1, 2) and not (tmp_path / names["dead"]).exists()
    os.utime(tmp_path / names["far"], (0, 0))
    assert sweep(tmp_path) == (1, 1) and (tmp_path / names["living"]).exists()


def test_without_locks_the_cache_keeps_what_is_compiled(lockless: None, tmp_path: Path) -> None:
    first = Cache(tmp_path / "cache")
    assert first.fetch("test", ("key",), lambda: b"made") == b"made" and first.counts.faults == 0
    assert Cache(tmp_path / "cache").get("test", ("key",)) == b"made"
