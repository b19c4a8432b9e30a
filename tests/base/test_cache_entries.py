"""Entries of the cache: what is kept, what is refused, in which order it goes; a fault never reaches the caller."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dslc.base import cache as module
from dslc.base.cache import Cache
from dslc.base.cache_entry import OVERHEAD, key_of, lock_of, name_of, pack, unpack
from dslc.base.errors import DslcWarning

FIELDS = ("text of a kernel", "sm_90", b"\x00options")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@contextmanager
def one_warning(*words: str) -> Iterator[None]:
    """Exactly one warning W002 that holds all of ``words``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [w.category for w in caught] == [DslcWarning], [str(w.message) for w in caught]
    text = str(caught[0].message)
    assert text.startswith("[W002]") and all(word in text for word in words), text


def path_of(folder: Path, kind: str = "ptx", fields: tuple[str | bytes, ...] = FIELDS) -> Path:
    return folder / name_of(kind, key_of(kind, fields))


def test_what_was_put_is_found_by_its_whole_key(folder: Path) -> None:
    first = Cache(folder)
    assert first.get("ptx", FIELDS) is None
    first.put("ptx", FIELDS, b"code")
    assert first.get("ptx", FIELDS) == b"code" == Cache(folder).get("ptx", FIELDS)
    for kind, fields in (("cubin", FIELDS), ("ptx", FIELDS[:2]), ("ptx", ("text of a kernels", "m_90", FIELDS[2]))):
        assert first.get(kind, fields) is None
    assert (first.counts.hits, first.counts.misses, first.counts.compiled) == (1, 4, 1)
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert {oct(p.stat().st_mode & 0o777) for p in folder.iterdir()} == {"0o600"}


def test_fields_do_not_run_into_each_other() -> None:
    assert len({key_of("a", f) for f in (("b", "c"), ("bc", ""), ("", "bc"), ("bc",), ("b", "c", ""))}) == 5
    assert key_of("ab", ("c",)) != key_of("a", ("bc",))


def test_fetch_makes_once(folder: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"x" * 1000

    threads = [
        threading.Thread(target=lambda: results.append(Cache(folder).fetch("ptx", FIELDS, make))) for _ in range(8)
    ]
    results: list[bytes] = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"x" * 1000] * 8 and len(made) == 1
    assert not [p for p in folder.iterdir() if p.name.startswith(".")], "locks and temps are gone"


def test_who_waits_too_long_compiles_too(folder: Path) -> None:
    slow, other = Cache(folder), Cache(folder)
    claim = slow.claim("ptx", FIELDS)
    assert claim.take() and not other.claim("ptx", FIELDS).take()
    assert other.fetch("ptx", FIELDS, lambda: b"mine", timeout=0.05) == b"mine"
    claim.release()
    again = other.claim("ptx", FIELDS)
    assert again.take()
    again.release()


def test_an_error_of_the_compiler_is_the_callers(folder: Path) -> None:
    def fails() -> bytes:
        raise ValueError("no such instruction")

    with pytest.raises(ValueError, match="no such instruction"):
        Cache(folder).fetch("ptx", FIELDS, fails)
    assert Cache(folder).fetch("ptx", FIELDS, lambda: b"mended") == b"mended"


def test_every_flipped_bit_and_every_cut_is_a_miss(folder: Path) -> None:
    key = key_of("ptx", FIELDS)
    data = pack(key, b"some code")
    assert unpack(data, key) == b"some code"
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unpack(bytes(damaged), key) is None, bit
    for size in range(len(data)):
        assert unpack(data[:size], key) is None, size
    assert unpack(data + b"\0", key) is None and len(data) == OVERHEAD + 9


@pytest.mark.parametrize(
    "damage", ["flip", "cut", "empty", "swap", "grown", "mode", "directory", "link", "fifo", "huge"]
)
def test_a_hostile_entry_is_a_miss_and_made_again(folder: Path, damage: str) -> None:
    cache = Cache(folder)
    cache.put("ptx", FIELDS, b"good")
    cache.put("ptx", ("another",), b"another's")
    path = path_of(folder)
    data = path.read_bytes()
    match damage:
        case "flip":
            path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
        case "cut":
            path.write_bytes(data[:-1])
        case "empty":
            path.write_bytes(b"")
        case "swap":
            path.write_bytes(path_of(folder, fields=("another",)).read_bytes())
        case "grown":
            path.write_bytes(data + data)
        case "mode":
            path.chmod(0o622)
        case "directory":
            path.unlink()
            path.mkdir()
        case "link":
            path.rename(folder / "elsewhere")
            path.symlink_to(folder / "elsewhere")
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "huge":
            os.truncate(path, 1 << 40)
    fresh = Cache(folder)
    with one_warning():
        assert fresh.fetch("ptx", FIELDS, lambda: b"made again") == b"made again"
    assert fresh.counts.compiled == 1
    later = Cache(folder)
    if damage == "directory":  # nobody's to remove
        with one_warning():
            assert later.get("ptx", FIELDS) is None
    else:
        assert later.get("ptx", FIELDS) == b"made again"
    assert Cache(folder).get("ptx", ("another",)) == b"another's"


def test_a_damaged_entry_that_another_replaced_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, other = Cache(folder), Cache(folder)
    cache.put("ptx", FIELDS, b"good")
    path = path_of(folder)
    path.write_bytes(b"damaged")
    real = module.unpack

    def unpack_late(data: bytes, key: bytes) -> bytes | None:
        other.put("ptx", FIELDS, b"good again")
        return real(data, key)

    monkeypatch.setattr(module, "unpack", unpack_late)
    with one_warning("damaged"):
        assert cache.get("ptx", FIELDS) is None
    monkeypatch.undo()
    assert cache.get("ptx", FIELDS) == b"good again"


def test_folders_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name, word in (("file", "not a directory"), ("open", "others may write"), ("link", "not a directory")):
        with one_warning("is not used", str(tmp_path / name), word):
            cache = Cache(tmp_path / name)
            assert cache.fetch("ptx", FIELDS, lambda: b"code") == b"code" and cache.folder is None
    assert os.listdir(tmp_path / "real") == [] == os.listdir(tmp_path / "open")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 65534, 65534)
    with one_warning("belongs to someone else"):
        assert Cache(tmp_path / "theirs").fetch("ptx", FIELDS, lambda: b"code") == b"code"
    mine = Cache(tmp_path / "mine")
    mine.put("ptx", FIELDS, b"code")
    os.chown(path_of(tmp_path / "mine"), 65534, 65534)
    with one_warning("damaged"):
        assert mine.get("ptx", FIELDS) is None


READ_ONLY = """
import os, sys
from pathlib import Path
from dslc.base.cache import Cache
if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)
cache = Cache(Path(sys.argv[1]))
print(cache.fetch("ptx", ("kept",), lambda: b"new"), cache.fetch("ptx", ("lacking",), lambda: b"new"))
print(cache.fetch("ptx", ("lacking too",), lambda: b"new"), cache.counts.as_json())
"""


def test_a_folder_that_can_only_be_read_gives_hits(tmp_path: Path) -> None:
    """As a user whom modes stop: root is not stopped by 0555, and so becomes nobody when all is imported."""
    cache = Cache(tmp_path / "cache")
    cache.put("ptx", ("kept",), b"old")
    if os.geteuid() == 0:
        for parent in [tmp_path, *tmp_path.parents]:
            if parent == Path(tempfile.gettempdir()):
                break
            parent.chmod(0o755)
        for path in [tmp_path / "cache", *(tmp_path / "cache").iterdir()]:
            os.chown(path, 65534, 65534)
    (tmp_path / "cache").chmod(0o500)
    ran = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(tmp_path / "cache")], capture_output=True, text=True, check=True
    )
    (tmp_path / "cache").chmod(0o700)
    assert ran.stdout.splitlines()[0] == "b'old' b'new'"
    assert "'hits': 1, 'misses': 2, 'compiled': 2, 'faults': 1" in ran.stdout
    assert ran.stderr.count("W002") == 1 and "Permission denied" in ran.stderr


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("DSLC_CACHE_DIR", raising=False)
    assert Cache.open().folder == tmp_path / "home" / ".cache" / "dslc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the XDG specification
    assert Cache.open().folder == tmp_path / "home" / ".cache" / "dslc"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache.open().folder == tmp_path / "xdg" / "dslc"
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "own"))
    assert Cache.open().folder == tmp_path / "own"
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    assert Cache.open().folder is None
    monkeypatch.setenv("DSLC_CACHE_DIR", "here")
    monkeypatch.chdir(tmp_path)
    with one_warning("not an absolute path"):
        assert Cache.open().folder is None
    assert sorted(os.listdir(tmp_path)) == ["home", "own", "xdg"]


@pytest.mark.parametrize("text", ["many", "-1", "1e3", "9" * 11])
def test_a_limit_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("DSLC_CACHE_MIB", text)
    with one_warning("DSLC_CACHE_MIB"):
        assert Cache.open().folder is None


def test_the_least_recently_used_go_first(folder: Path) -> None:
    def run(*names: str, limit: int = 10**9) -> Cache:
        """One run of a program that needs these."""
        cache = Cache(folder, limit)
        for name in names:
            cache.fetch("ptx", (name,), lambda: b"c" * 1000)
        return cache

    run("a", "b", "c", "d")
    run("b", "d")
    run("e")
    run("a")
    cache = run("f", limit=5 * 1100)  # six are there: down to three quarters of the limit
    assert cache.counts.evicted == 3
    there = {name for name in "abcdef" if Cache(folder).get("ptx", (name,)) is not None}
    assert there == {"a", "e", "f"}


def test_no_clock_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry whose time was given by a clock is of unknown age, and goes first."""
    cache = Cache(folder)
    for name in ("a", "b"):
        cache.put("ptx", (name,), b"code")
    for when in (0.0, 1e9, 2e9, 4e9):
        os.utime(path_of(folder, fields=("b",)), (when, when))
        assert Cache(folder).entries()[0].name == path_of(folder, fields=("b",)).name
        assert Cache(folder).get("ptx", ("a",)) == b"code"
    assert Cache(folder).get("ptx", ("b",)) == b"code"
    assert all(0 < e.run < 100 for e in cache.entries())
    os.utime(folder / "runs", (3e9, 3e9))
    assert Cache(folder).get("ptx", ("b",)) == b"code"
    assert (folder / "runs").stat().st_mtime == 1


def test_clear_takes_what_is_the_caches_alone(folder: Path) -> None:
    cache = Cache(folder)
    for number in range(5):
        cache.put("ptx", (str(number),), b"code")
    (folder / "notes.txt").write_text("mine")
    (folder / f".dslc-{'0' * 16}.tmp").write_bytes(b"of the dead")
    (folder / lock_of(path_of(folder).name)).write_bytes(b"1\n")
    count, size = cache.clear()
    assert (count, size) == (5, 5 * (OVERHEAD + 4)) and cache.entries() == []
    assert sorted(os.listdir(folder)) == ["notes.txt", "runs"]


def test_a_payload_that_is_too_large_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    cache = Cache(folder)
    cache.put("ptx", FIELDS, b"x" * 11)
    assert cache.get("ptx", FIELDS) is None and cache.counts.faults == 0


def test_a_full_disk_is_met_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def full(*_: object) -> None:
        tried.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = Cache(folder)
    cache.put("ptx", ("kept",), b"old")
    monkeypatch.setattr(os, "write", full)
    with one_warning("cannot be written", "No space left"):
        for name in ("a", "b", "c"):
            assert cache.fetch("ptx", (name,), lambda: b"new") == b"new"
    assert len(tried) == 1 and cache.get("ptx", ("kept",)) == b"old"
    assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]


def test_entries_do_not_wait_for_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are verified when they are read: a loss of power leaves a miss at most."""
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("waited"))
    cache = Cache(folder)
    cache.put("ptx", FIELDS, b"code")
    assert cache.get("ptx", FIELDS) == b"code"
    [entry] = cache.entries()
    os.truncate(folder / entry.name, 20)
    with one_warning("damaged"):
        assert cache.get("ptx", FIELDS) is None


def test_an_entry_under_the_name_of_another_kind_is_a_miss(folder: Path) -> None:
    """The kind is part of what its key is made of, not of the name alone."""
    cache = Cache(folder)
    cache.put("object", FIELDS, b"an object")
    assert key_of("object", FIELDS) != key_of("cubin", FIELDS)
    [entry] = cache.entries()
    os.rename(folder / entry.name, folder / name_of("cubin", key_of("cubin", FIELDS)))
    with one_warning("damaged"):
        assert cache.get("cubin", FIELDS) is None
    assert cache.get("object", FIELDS) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [(("ab", "c"), ("a", "bc")), (("a", ""), ("a",)), (("", "a"), ("a", "")), (("a", "b"), ("b", "a"))],
)
def test_other_fields_are_another_key(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert key_of("object", one) != key_of("object", other)
