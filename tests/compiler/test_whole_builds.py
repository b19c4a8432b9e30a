"""A second build of the same runs no pass: its files come from the cache, and anything that decides them tells."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dslc.base.cache import Cache
from dslc.compiler import cached_build as finished_module
from dslc.compiler.cached_build import Finished, finished
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 4], hidden: int = 6) -> [B, 3] {
  return x |> linear(hidden) as fc |> relu |> linear(3) as head
}
"""
OPTIONS = Options(sizes={"predict": {"B": (8,)}})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the build of MODEL."""
    folder = tmp_path_factory.mktemp("filled")
    made(folder, Cache(folder / "cache"))
    return folder / "cache"


@pytest.fixture
def cache(tmp_path: Path, filled: Path) -> Cache:
    """A copy of it."""
    return Cache(shutil.copytree(filled, tmp_path / "cache"))


def made(
    folder: Path, cache: Cache, text: str = MODEL, file: str = "net.nn", options: Options = OPTIONS, **args: Any
) -> Finished:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text(text)
    return finished(check_file(str(path), args={n: str(v) for n, v in args.items()}), options, cache=cache)


def without_times(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: without_times(value) for name, value in facts.items() if name != "seconds"}
    return [without_times(each) for each in facts] if isinstance(facts, list) else facts


def test_the_second_build_runs_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    first = made(tmp_path / "one", cache)
    assert first.result is not None and first.compiled == first.facts["kernels"] > 0
    rebuilt = finished(check_file(str(tmp_path / "one/net.nn")), OPTIONS, cache=Cache(cache.folder), rebuild=True)
    monkeypatch.setattr("dslc.compiler.pipeline.build", None)  # to call it would fail
    again = made(tmp_path / "in another folder", Cache(cache.folder))
    assert again.result is None and again.compiled == 0
    assert (again.cache.hits, again.cache.misses, again.cache.compiled) == (1, 0, 0)
    assert rebuilt.result is not None and rebuilt.compiled == 0
    for other in (again, rebuilt):
        assert list(other.files.items()) == list(first.files.items())  # the artifact last
        assert without_times(other.facts) == without_times(first.facts)


@pytest.mark.parametrize(
    "change",
    [
        {"text": MODEL.replace("relu", "tanh")},
        {"text": MODEL + "# a comment moves no line, but the text is another\n"},
        {"file": "other.nn"},
        {"hidden": 5},
        {"options": replace(OPTIONS, sizes={"predict": {"B": (4,)}})},
        {"options": replace(OPTIONS, provider="reference")},
        {"options": replace(OPTIONS, precision="f64")},
        {"options": replace(OPTIONS, target="sm_90")},
        {"options": replace(OPTIONS, bulk=1)},
        {"options": replace(OPTIONS, streams=2)},
        {"options": replace(OPTIONS, mirror="never")},
        {"options": replace(OPTIONS, steps_per_launch=2)},
        {"options": replace(OPTIONS, fuse=False)},
        {"options": replace(OPTIONS, name="named")},
    ],
    ids=str,
)
def test_what_decides_the_files_is_another_build(tmp_path: Path, cache: Cache, change: dict[str, Any]) -> None:
    assert made(tmp_path, cache, **change).result is not None
    assert made(tmp_path, cache, **change).result is None
    assert made(tmp_path, cache).result is None


def test_a_file_that_is_used_counts(tmp_path: Path, cache: Cache) -> None:
    block = "nn 1\nblock top(x: [N, K]) -> [N, 3] { return x |> linear(3) as head }\n"
    (tmp_path / "parts.nn").write_text(block)
    text = MODEL.replace("nn 1\n", "nn 1\nuse parts (top)\n").replace("linear(3) as head", "top() as h")
    first = made(tmp_path, cache, text)
    (tmp_path / "parts.nn").write_text(block.replace("linear(3)", "relu |> linear(3)"))
    second = made(tmp_path, cache, text)
    assert first.result is not None and second.result is not None


@pytest.mark.parametrize("name", ["_compiler_digest", "toolchain", "version"])
def test_another_compiler_builds_again(
    tmp_path: Path, cache: Cache, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_module, name, lambda *_: {"of": "another"} if name == "toolchain" else "of another")
    assert made(tmp_path, cache).result is not None


def test_the_digest_is_of_the_sources(tmp_path: Path) -> None:
    from dslc.compiler.toolchain.source_digest import digest_of

    (tmp_path / "a/inside").mkdir(parents=True)
    (tmp_path / "a/x.py").write_text("1")
    before = digest_of([tmp_path / "a"])
    (tmp_path / "a/inside/x.pyc").write_text("bytecode")
    assert digest_of([tmp_path / "a"]) == before
    (tmp_path / "a/x.py").rename(tmp_path / "a/y.py")
    moved = digest_of([tmp_path / "a"])
    (tmp_path / "a/inside/kernel.cu").write_text("2")
    assert len({before, moved, digest_of([tmp_path / "a"])}) == 3


def test_a_damaged_entry_is_built_again(tmp_path: Path, cache: Cache) -> None:
    first = made(tmp_path, cache)
    [entry] = [e for e in cache.entries() if e.kind == "build"]
    assert cache.folder is not None
    path = cache.folder / entry.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.warns(match="damaged"):
        second = made(tmp_path, cache)
    assert second.result is not None and dict(second.files) == dict(first.files)


def test_without_a_cache(tmp_path: Path) -> None:
    assert made(tmp_path, Cache(None)).result is not None and made(tmp_path, Cache(None)).result is not None
