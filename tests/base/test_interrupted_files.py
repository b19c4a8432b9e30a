"""Ctrl-C at any point of a publication or of the cache: names stay whole, nothing lies about, the next call works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from interruption.interrupts import leaves_nothing, spread

import dslc
from dslc.base.cache import Cache
from dslc.base.errors import ResourceError
from dslc.base.publish import publish_bytes, publish_files

ROOT = Path(dslc.__file__).parent
PARTS = ("base", "cli", "compiler", "runtime")
OLD, NEW = b"old" * 5, b"new" * 5
#: With DSLC_SOAK=1 six times as many points are struck, each with several waits for the disk.
pytestmark = pytest.mark.timeout(600)
OPCODES = pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])


def written(sink: object) -> None:
    for start in range(0, len(NEW), 5):
        sink.write(NEW[start : start + 5])  # type: ignore[attr-defined]


@OPCODES
@pytest.mark.parametrize("content", [NEW, written], ids=["bytes", "writer"])
def test_a_file_is_the_old_one_or_the_new_one(content: object, opcodes: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"

    def publish() -> bytes:
        path.write_bytes(OLD)
        publish_bytes(path, content, verify=Path.read_bytes, tidy=False)  # type: ignore[arg-type]
        return path.read_bytes()

    def whole() -> None:
        assert path.read_bytes() in (OLD, NEW)

    pick = spread(60)
    leaves_nothing(publish, tmp_path, pick, least=300 if opcodes else 60, opcodes=opcodes, after=whole)


@OPCODES
def test_a_file_that_is_refused_leaves_nothing(opcodes: bool, tmp_path: Path) -> None:
    """Its temp still has its name at the end, so both removals have work to do: an interrupt of one leaves no temp."""
    path = tmp_path / "file"

    def refuse(temp: Path) -> None:
        raise ResourceError("R402", f"{temp.stat().st_size} bytes do not read back")

    def publish() -> tuple[str, bytes]:
        path.write_bytes(OLD)
        with pytest.raises(ResourceError) as caught:
            publish_bytes(path, NEW, verify=refuse)
        return caught.value.message, path.read_bytes()

    def whole() -> None:
        assert path.read_bytes() == OLD

    def after_the_refusal(points: int) -> Iterable[int]:
        first = points // 2
        return (first + n for n in spread(150)(points - first))

    leaves_nothing(publish, tmp_path, after_the_refusal, least=800 if opcodes else 200, opcodes=opcodes, after=whole)


@OPCODES
def test_the_commit_file_comes_last(opcodes: bool, tmp_path: Path) -> None:
    names = ("a", "b", "z")

    def publish() -> list[bytes]:
        for name in names:
            (tmp_path / name).write_bytes(OLD)
        publish_files(tmp_path, dict.fromkeys(names, NEW), "b")
        return [(tmp_path / name).read_bytes() for name in names]

    def whole() -> None:
        found = {name: (tmp_path / name).read_bytes() for name in names}
        assert set(found.values()) <= {OLD, NEW}
        assert found["b"] == OLD or set(found.values()) == {NEW}

    pick = spread(60)
    leaves_nothing(publish, tmp_path, pick, least=800 if opcodes else 150, opcodes=opcodes, after=whole)


def entry_made(folder: Path) -> object:
    cache = Cache(folder)
    cache.clear()
    made = cache.fetch("test", ("missing",), lambda: NEW)
    found = cache.get("test", ("missing",))
    return made, found, cache.counts.faults


def entry_evicted(folder: Path) -> object:
    cache = Cache(folder, limit=500)
    cache.clear()
    for name in "abcd":
        cache.put("test", (name,), NEW)
    found = cache.get("test", ("d",)), cache.counts.evicted, cache.counts.faults
    return found


def entry_damaged(folder: Path) -> object:
    cache = Cache(folder)
    cache.clear()
    cache.put("test", ("damaged",), NEW)
    [path] = [folder / entry.name for entry in cache.entries()]
    path.write_bytes(OLD)
    with pytest.warns(match="W002"):
        found = cache.fetch("test", ("damaged",), lambda: NEW)
    return found


@OPCODES
@pytest.mark.parametrize("call", [entry_made, entry_evicted, entry_damaged])
def test_an_entry_of_the_cache(call: Callable[[Path], object], opcodes: bool, tmp_path: Path) -> None:
    """The right to compile is free again, and what is there is whole: the next call waits for nobody."""
    folder = tmp_path / "cache"
    pick = spread(50)
    leaves_nothing(lambda: call(folder), tmp_path, pick, least=1500 if opcodes else 300, opcodes=opcodes)


def test_files_are_opened_through_opened() -> None:
    """A descriptor is a number, which nobody closes if an interrupt comes before it is recorded."""
    own = ("base/opened.py", "base/failpoint.py", "cli/surroundings.py")  # the second for tests, the third opens stdio
    found = []
    for path in [p for part in PARTS for p in sorted((ROOT / part).rglob("*.py"))]:
        name = str(path.relative_to(ROOT))
        raw = re.findall(r"os\.(?:open|fdopen|dup|memfd_create|pipe)\(.*", path.read_text())
        found += [f"{name}: {line}" for line in raw if name not in own and "os.dup(1)" not in line]
    assert found == []
