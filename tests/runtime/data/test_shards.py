"""Tar shards: the rows of WebDataset's samples, and what is refused."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.hostile_tars import BLOCK, END, GOOD, TARS, header, member, pax, tiny

from dslc.base.errors import DataError
from dslc.runtime.data.shards import index as index_module
from dslc.runtime.data.shards.index import index_of
from dslc.runtime.data.source import Source, files

ROWS = 24


def write(path: Path, listed: Sequence[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT) -> None:
    with tarfile.open(path, "w", format=format) as file:
        for name, data in listed:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5  # a time for which pax needs a record
            file.addfile(info, io.BytesIO(data))


def npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((ROWS, 3)).astype("f4"), rng.integers(0, 5, ROWS).astype("i4")


@pytest.fixture
def folder(tmp_path: Path, rows: Any) -> Path:
    """The same rows as an .npz and as three shards of 7, 9 and 8 samples."""
    x, y = rows
    np.savez(tmp_path / "d.npz", x=x, y=y)
    for number, (start, end) in enumerate(((0, 7), (7, 16), (16, 24))):
        listed = []
        for i in range(start, end):
            fields = {"label": int(y[i]), "deep": {"x": [float(v) for v in x[i]]}}
            name = f"some/{'long/' * 30}folder/{i:03}" if i % 2 else f"{i:03}"
            listed += [(f"{name}.x.npy", npy(x[i])), (f"{name}.cls", b"%d\n" % y[i])]
            listed += [(f"{name}.json", json.dumps(fields).encode()), ("README", b"no sample")][: 1 + i % 2]
        format = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[number]
        write(tmp_path / f"s-{number:02}.tar", listed, format)
    return tmp_path


def of(folder: Path, x: str = "x.npy", y: str = "cls", pattern: str = "s-{00..02}.tar") -> dict[str, Any]:
    return {
        "x": (f"{folder}/{pattern}:{x}", "f32", ("B", 3)),
        "y": (f"{folder}/{pattern}:{y}", "i32", ("B",), (0, 5)),
    }


def batches(data: Any, workers: int, start: int = 0) -> list[dict[str, bytes]]:
    tasks = [(data.order(3, epoch, shuffle=True)[at : at + 5], epoch) for epoch in (0, 1) for at in range(0, 20, 5)]
    found = data.feed(iter(tasks[start:]), workers)
    return [{name: array.tobytes() for name, array in batch.items()} for batch in found]


@pytest.mark.parametrize("keys", [("x.npy", "cls"), ("json.deep.x", "json.label")])
@pytest.mark.parametrize("far", [False, True])
def test_shards_give_the_bits_of_an_npz(
    folder: Path, keys: tuple[str, str], far: bool, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened(x=(f"{folder}/d.npz:x", "f32", ("B", 3)), y=(f"{folder}/d.npz:y", "i32", ("B",), (0, 5)))
    expected = batches(whole, 0)
    assert len(expected) == 8 and expected[0] != expected[4]
    if far:
        monkeypatch.setattr("dslc.runtime.data.shards.rows.AT_ONCE", 8)
        monkeypatch.setattr("dslc.runtime.data.column.AT_ONCE", 8)
    data = opened(**of(folder, *keys))
    assert all(column.rows.in_memory != far for column in data.columns.values())
    for workers in (0, 1, 3) if far else (0,):
        assert batches(data, workers) == expected
        assert batches(data, workers, 3) == expected[3:]  # as after a resume
    assert batches(opened(**of(folder, *keys, pattern="s-*.tar")), 0) == expected


def test_pictures_in_shards(tmp_path: Path, opened: Any) -> None:
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 4, 3)).astype("u1")
    listed = []
    for i, each in enumerate(pixels):
        made = io.BytesIO()
        Image.fromarray(each).save(made, "PNG")
        listed += [(f"{i}.PNG", made.getvalue()), (f"{i}.cls", b"%d" % i)]
    listed[4] = ("2.png", b"no picture")
    write(tmp_path / "s.tar", listed)
    wanted = {"x": (f"{tmp_path}/s.tar:png", "u8", ("B", 5, 4, 3)), "y": (f"{tmp_path}/s.tar:cls", "i32", ("B",))}
    notes: list[str] = []
    data = opened(skip=1, notes=notes, **wanted)
    for workers in (1, 3):
        [batch] = data.feed([(np.array([1, 2, 4]), 0)], workers)
        assert np.array_equal(batch["x"], pixels[[1, 1, 4]]) and batch["y"].tolist() == [1, 1, 4]
    assert any("sample 2 (2.png)" in note for note in notes)
    with pytest.raises(DataError, match="record 2 cannot be read"):
        opened(**wanted).take(np.array([2]))


def test_texts_in_shards(tmp_path: Path, opened: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1, "b": 2, "?": 3}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "t.json"))
    write(tmp_path / "s.tar", [("0.txt", b"a b a"), ("1.txt", b"b c"), ("2.txt", b"\xff")])
    data = opened(tokenizer=tmp_path / "t.json", skip=1, x=(f"{tmp_path}/s.tar:txt", "i32", ("B", 4), (0, 4)))
    assert data.take(np.array([0, 1]))["x"].tolist() == [[1, 2, 1, 0], [2, 3, 0, 0]] and data.rows == 2


def test_a_shard_of_mean_headers_is_refused_early(tmp_path: Path, refused: Any) -> None:
    for records in (65, 64):
        (tmp_path / "s.tar").write_bytes(pax(b"5 a=\n" * records) * 10_000 + GOOD)
        assert "extended header" in refused(lambda: index_of(tmp_path / "s.tar")).message


@pytest.mark.parametrize("what", TARS)
def test_hostile_shards_are_refused(what: str, tmp_path: Path, opened: Any, refused: Any) -> None:
    data, says = TARS[what]
    (tmp_path / "s.tar").write_bytes(data)
    error = refused(lambda: opened(y=(f"{tmp_path}/s.tar:cls", "i32", ("B",))))
    assert error.code == "R101" and says in error.message, error.message


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD[:-BLOCK],  # one block of zeros
        GOOD + bytes(20 * BLOCK),  # a filled record
        pax(b"16 comment=free\n", b"g") + GOOD,
        member(b"x/", b"", b"5") + GOOD,
        GOOD.replace(b"ustar\x0000", b"ustar  \0"),  # GNU's magic has another checksum, see below
        header(b"a.cls", b"\x80" + bytes(10) + b"\x01") + b"1" + bytes(511) + member(b"b.cls", b"2") + END,
        member(b"/etc/passwd.cls", b"1") + member(b"../../x.cls", b"2") + END,  # names that nothing opens
        member(b"._a.cls", b"7")[:0] + member(b".hidden", b"7") + GOOD,
    ],
    ids=range(9),
)
def test_what_is_accepted(data: bytes, tmp_path: Path, opened: Any) -> None:
    if b"ustar  \0" in data:
        data = member(b"a.cls", b"1", magic=b"ustar  \0") + member(b"b.cls", b"2", magic=b"ustar  \0") + END
    (tmp_path / "s.tar").write_bytes(data)
    found = opened(y=(f"{tmp_path}/s.tar:cls", "i32", ("B",)))
    assert found.take(np.array([0, 1]))["y"].tolist() == [1, 2]
    assert sorted(os.listdir(tmp_path)) == ["s.tar"]


def test_too_many_members(tmp_path: Path, refused: Any) -> None:
    (tmp_path / "s.tar").write_bytes(tiny(100_001))
    error = refused(lambda: index_of(tmp_path / "s.tar"))
    assert error.code == "R101" and "more than 100000 members" in error.message


@pytest.mark.parametrize(
    ("members", "key", "code", "says"),
    [
        ([("0.cls", b"1"), ("1.cls", b"one")], "cls", "R101", "'one' is not an integer"),
        ([("0.cls", b"1"), ("1.cls", b"9" * 30)], "cls", "R101", "not an integer"),
        ([("0.cls", b"1"), ("1.cls", b" " * 90)], "cls", "R101", "90 bytes"),
        ([("0.cls", b"1"), ("1.txt", b"")], "cls", "R101", "it has no .cls"),
        ([("0.cls", b"1")], "id", "R102", "no sample has a member .id"),
        ([("0.cls", b"7")], "cls", "R103", "the value 7 is out of range"),
        ([("0.json", b'{"a": 1}'), ("1.json", b'{"a": "1"}')], "json.a", "R101", "not an integer"),
        ([("0.json", b'{"a": 1}'), ("1.json", b'{"a": true}')], "json.a", "R101", "not an integer"),
        ([("0.json", b'{"a": 1}'), ("1.json", b'{"b": 1}')], "json.a", "R101", "no field `a`"),
        ([("0.json", b'{"a": 1}'), ("1.json", b'{"a": 1')], "json.a", "R101", "record 1 cannot be read"),
        ([("0.json", b'{"a": 1}'), ("1.json", b"[" * 99999)], "json.a", "R101", "nest"),
        ([("0.json", b'{"a": 99999999999999999999}')], "json.a", "R101", "64 bits"),
        ([("0.json", b'{"a": [1]}')], "json.a", "R101", "not an integer"),
        ([("0.npy", npy(np.int64(1))), ("1.npy", npy(np.ones(2)))], "npy", "R101", "its shape is [2]"),
        ([("0.npy", npy(np.int64(1))), ("1.npy", npy(np.int32(1)))], "npy", "R101", "int32"),
        ([("0.npy", npy(np.int64(1))), ("1.npy", npy(np.int64(1))[:-1])], "npy", "R101", "needs 8 bytes"),
        ([("0.npy", b"junk")], "npy", "R101", "damaged"),
        ([("0.npy", npy(np.ones(3)))], "npy", "R102", "the first sample is [3]"),
    ],
)
def test_bad_members(members: Any, key: str, code: str, says: str, tmp_path: Path, opened: Any, refused: Any) -> None:
    write(tmp_path / "s.tar", members)
    error = refused(lambda: opened(y=(f"{tmp_path}/s.tar:{key}", "i32", ("B",), (0, 5))))
    assert error.code == code and says in error.message, error.message
    if code == "R101" and len(members) > 1:
        assert opened(skip=1, y=(f"{tmp_path}/s.tar:{key}", "i32", ("B",), (0, 5))).rows == 1


def test_names_and_numbered_sets(tmp_path: Path, refused: Any) -> None:
    from dslc.runtime.data.names import split

    assert split("a-{00..12}.tar:SEG.png") == ("a-{00..12}.tar", "SEG.png")
    for text in ("a.tar", "a.tar:", "a.tar:xyz", "a.tar:json", "a.tar:json."):
        with pytest.raises(ValueError):
            split(text)
    source = Source(tmp_path / "a-{08..11}-{0..1}.tar", "cls", "a")
    names = [each.path.name for each in files(source, lambda text: None, "x")]
    assert names == [f"a-{i:02}-{j}.tar" for i in range(8, 12) for j in range(2)]
    for wrong in ("{5..4}", "{0..99999}", "{0..999}{0..999}"):
        error = refused(lambda wrong=wrong: files(Source(tmp_path / wrong, "cls", "a"), lambda text: None, "x"))
        assert error.code == "R101" and "paths" in error.message


def test_a_compressed_or_missing_shard_is_told_at_once(tmp_path: Path, opened: Any, refused: Any) -> None:
    for name, says in (("s.tar.gz", "compressed"), ("s.tgz", "compressed"), ("s-{0..1}.tar", "no such file")):
        error = refused(lambda name=name: opened(y=(f"{tmp_path}/{name}:cls", "i32", ("B",))))
        assert error.code == "R101" and says in error.message


def test_a_shard_that_changes_under_a_run(folder: Path, opened: Any, refused: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("dslc.runtime.data.shards.rows.AT_ONCE", 8)
    data = opened(**of(folder))
    with open(folder / "s-01.tar", "ab") as file:
        file.write(bytes(BLOCK))
    error = refused(lambda: data.take(np.array([8])))
    assert error.code == "R101" and "changed" in error.message


def test_the_index_comes_from_the_cache(folder: Path, tmp_path: Path, opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(index_module, "_KEPT", 1)
    index_module._index.cache_clear()
    first = batches(opened(**of(folder)), 0)
    index_module._index.cache_clear()

    def scanned(*args: object) -> None:
        raise AssertionError("scanned again")

    monkeypatch.setattr(index_module, "_scanned", scanned)
    assert batches(opened(**of(folder)), 0) == first
    index_module._index.cache_clear()


def test_names_of_samples(folder: Path) -> None:
    from dslc.runtime.data.names import format_of

    source = Source(folder / "s-00.tar", "cls", "s")
    names = format_of(source).row_names(source)
    assert names is not None and [name.rpartition("/")[2] for name in names] == [f"{i:03}" for i in range(7)]


def test_mutated_shards_are_read_or_refused(
    folder: Path, opened: Any, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    rng = random.Random(fuzz_seed)
    whole = (folder / "s-00.tar").read_bytes()
    refused = 0
    for _ in range(fuzz_count(600)):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            block = rng.randrange(len(data) // BLOCK) * BLOCK
            at = block + rng.choice([rng.randrange(BLOCK), 124, 156, 148])
            data[at : at + 1] = rng.choice([b"", b"\xff", b"8", bytes([rng.randrange(256)]), bytes(BLOCK)])
            if rng.random() < 0.5:  # with the checksum that belongs to it, so that the field itself is looked at
                head = bytearray(data[block : block + BLOCK])
                head[148:156] = b" " * 8
                data[block + 148 : block + 156] = b"%06o\0 " % sum(head)
        (folder / "s.tar").write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.1 else len(data)])
        try:
            found = opened(skip=99, **of(folder, pattern="s.tar"))
            assert 0 < found.rows <= 8
        except DataError as error:
            refused += 1
            assert error.help and error.place
    assert refused


def test_an_integer_that_a_float_would_round(tmp_path: Path, opened: Any, refused: Any) -> None:
    write(tmp_path / "s.tar", [("0.json", b'{"a": [1, 16777217.0]}'), ("1.json", b'{"a": [1, 16777217]}')])
    error = refused(lambda: opened(y=(f"{tmp_path}/s.tar:json.a", "f32", ("B", 2))))
    assert error.code == "R101" and "float32 holds integers exactly up to 16777216" in error.message, error.message
