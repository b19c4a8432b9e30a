"""The cache as a process holds it: its limit, and the files that it has open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dslc.base.cache import Cache
from dslc.base.errors import DslcWarning


@pytest.mark.parametrize(("text", "mib"), [("1", 1), ("3", 3), ("0", 0), ("", 1024), ("123456789", 123456789)])
def test_the_limit_is_given_in_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mib: int) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DSLC_CACHE_MIB", text)
    assert Cache.open().limit == mib * 1024 * 1024


def test_no_call_leaves_a_file_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for number in range(3):
        cache = Cache(tmp_path / "cache")  # each is a run of its own
        assert cache.get("object", ["missing"]) is None
        cache.put("object", [str(number)], b"code")
        assert cache.get("object", [str(number)]) == b"code"
        with cache.claim("object", ["other"]) as claim:
            assert claim.take()
        assert cache.fetch("object", ["made"], lambda: b"made") == b"made"
        entry = tmp_path / "cache" / cache.entries()[-1].name
        entry.write_bytes(b"damaged")
        with pytest.warns(DslcWarning, match="damaged"):
            assert [cache.get("object", [name]) for name in (str(number), "made")].count(None) == 1
    cache.clear()
    assert opened() == before
