"""``dslc cache``"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.base.cache import Cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DSLC_CACHE_MIB", "10")
    found = Cache.open()
    for kind, text in (("cpu_kernel", "one"), ("cpu_kernel", "two"), ("ptx", "three")):
        found.put(kind, (text,), b"c" * 1000)
    return found


def test_show_list_clear(dslc: Callable, cache: Cache) -> None:
    shown = dslc("cache")
    assert shown.code == 0 and str(cache.folder) in shown.out and "of 10 MiB" in shown.out
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["kind", "entries", "size"] and rows[1][:2] == ["cpu_kernel", "2"] and rows[2][:2] == ["ptx", "1"]
    data = dslc("cache", "--json").json
    assert data == {"folder": str(cache.folder), "entries": 3, "bytes": 3240, "limit": 10 << 20}
    listed = dslc("cache", "list", "--json").json["list"]
    assert [e["name"] for e in listed] == [e.name for e in cache.entries()] and {e["run"] for e in listed} == {1}
    assert all(entry.name in dslc("cache", "list").out for entry in cache.entries())
    assert dslc("cache", "clear", "--json").json == {"folder": str(cache.folder), "removed": 3, "bytes": 3240}
    assert cache.entries() == [] and "0 entries, 0 B of" in dslc("cache").out


def test_without_a_cache(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    assert dslc("cache").out.startswith("no cache: 0 entries")
    assert dslc("cache", "clear", "--json").json == {"folder": None, "removed": 0, "bytes": 0}


def test_a_folder_that_is_refused_is_a_warning(dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "file"))
    ran = dslc("cache")
    assert ran.code == 0 and ran.err.count("W002") == 1


def test_an_entry_that_cannot_go_is_an_error(dslc: Callable, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dslc.base.cache.os.unlink", refused)
    ran = dslc("cache", "clear")
    assert ran.code == 6 and "error[R402]: the cache cannot be cleared: Permission denied" in ran.err
