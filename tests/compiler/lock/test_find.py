"""Lock files: found in the project's folder, read with limits, written durably; and the tables that dslc ships."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hostile.hostile_files import ANYWHERE
from locks import block, random_lock

from dslc.base.cache import Cache
from dslc.base.errors import BuildError
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.lock.find import FILE, find_lock, merge_into, read_lock, write_lock
from dslc.compiler.lock.model import Lock
from dslc.compiler.lock.table import shipped, tables
from dslc.compiler.lock.text import format_lock


def test_a_lock_is_written_found_and_read(tmp_path: Path, fuzz_seed: int) -> None:
    assert find_lock(tmp_path) is None
    lock = random_lock(Random(fuzz_seed))
    write_lock(tmp_path / FILE, lock)
    path = find_lock(tmp_path)
    assert path == tmp_path / FILE and read_lock(path) == lock


def test_blocks_are_added_to_what_others_wrote_meanwhile(tmp_path: Path) -> None:
    path, cache = tmp_path / FILE, Cache(tmp_path / "cache")
    assert merge_into(path, [], cache) == (Lock(), Lock()) and find_lock(tmp_path) is None
    blocks = [block(f"key {number}") for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        results = [*pool.map(lambda each: merge_into(path, [each], cache), blocks)]
    assert read_lock(path) == Lock.of(blocks)
    assert sorted(len(after.blocks) - len(before.blocks) for before, after in results) == [1] * 24
    text = path.stat().st_mtime_ns
    assert merge_into(path, blocks[:3], cache) == (Lock.of(blocks), Lock.of(blocks)) and path.stat().st_mtime_ns == text


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_file_that_is_no_lock_is_an_error(name: str, tmp_path: Path) -> None:
    ANYWHERE[name](tmp_path / FILE)
    path = find_lock(tmp_path)
    assert path is not None, "a lock that cannot be read is not the same as none"
    with pytest.raises(BuildError) as caught:
        read_lock(path)
    assert caught.value.code == "E0607" and caught.value.help
    assert str(caught.value.place).startswith(str(path))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="there is no lock") as caught:
        read_lock(tmp_path / "other.lock")
    assert caught.value.code == "E0607"


def test_shipped_tables_are_canonical_and_for_known_targets() -> None:
    for path in tables():
        lock = read_lock(path)
        assert format_lock(lock) == path.read_text(encoding="utf-8")
        assert {block.target for block in lock.blocks} <= {*ARCHITECTURES}
        assert all(lock.on(gpu).blocks for gpu in lock.gpus)
    assert len(shipped().blocks) == sum(len(read_lock(path).blocks) for path in tables()), "no place in two tables"
