"""Tables that gzip, bzip2 or xz has compressed, and streams of Arrow: the rows of the plain file, or an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tables.written import WRITERS, arrow_table, random_table

from dslc.runtime.data.store import Store
from dslc.runtime.data.tables.packed import _READ

PACKINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
COLUMNS: Final = "city: {categories: index, missing: mode}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))


def rows(opened: Any, path: Path) -> dict[str, bytes]:
    data = opened(
        columns=COLUMNS, price=(f"{path}:price", "f64", ("B",)), city=(f"{path}:city", "f32", ("B",))
    )  # fmt: skip
    return {name: value.tobytes() for name, value in data.take(np.arange(data.rows)[::-1]).items()}


def one(opened: Any, path: Path) -> Any:
    return opened(x=(f"{path}:x", "f32", ("B",)))


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("name", ["t.csv", "semicolon.csv", "t.tsv", "t.jsonl"])
def test_a_compressed_table_has_the_rows_of_the_plain_one(tmp_path: Path, opened: Any, name: str, suffix: str) -> None:
    WRITERS[name](tmp_path / name, random_table(5, 40))
    text = (tmp_path / name).read_bytes()
    packed = tmp_path / f"{name}{suffix.upper() if name == 't.tsv' else suffix}"
    packed.write_bytes(PACKINGS[suffix](text))
    assert rows(opened, packed) == rows(opened, tmp_path / name)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_joined_streams_with_zeros_between_and_after_them_are_read_to_the_end(
    tmp_path: Path, opened: Any, suffix: str
) -> None:
    lines = [f"{number}\n".encode() for number in range(3000)]
    parts = [b"x\n", b"", *(b"".join(lines[at : at + 100]) for at in range(0, 3000, 100))]
    path = tmp_path / f"t.csv{suffix}"
    path.write_bytes(bytes(2 * _READ).join(PACKINGS[suffix](part) for part in parts) + bytes(512))
    data = one(opened, path)
    assert data.take(np.arange(3000))["x"].tolist() == list(range(3000))


def test_a_text_larger_than_what_is_unpacked_at_once(tmp_path: Path, opened: Any, monkeypatch: Any) -> None:
    """Also where a part ends exactly at the end of the text."""
    monkeypatch.setattr("dslc.runtime.data.tables.packed._PART", 64)
    for suffix, pack in PACKINGS.items():
        for count in range(60, 68):
            path = tmp_path / f"{count}.csv{suffix}"
            path.write_bytes(pack(b"x\n" + b"7\n" * count))
            assert one(opened, path).rows == count


@pytest.mark.parametrize("suffix", PACKINGS)
def test_what_is_cut_off_or_changed_is_refused(tmp_path: Path, opened: Any, refused: Any, suffix: str) -> None:
    """At every place: no rows are lost, and no other rows appear."""
    text = b"x\n" + b"".join(b"%d\n" % (number * 7919 % 1000) for number in range(99))
    good, path = PACKINGS[suffix](text), tmp_path / f"t.csv{suffix}"
    for end in range(len(good)):
        path.write_bytes(good[:end])
        error = refused(lambda: one(opened, path))
        says = "the file is empty" if not end else "is not compressed" if end < 6 else "its end is missing"
        assert error.code == "R101" and error.place == str(path) and error.help, end
        assert says in error.message or 1 < end < 6, (end, error.message)
    middle = len(good) // 2
    for data in (
        good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        good + b"x",  # what follows is no stream
        good + good[: len(good) // 2],
    ):
        path.write_bytes(data)
        error = refused(lambda: one(opened, path))
        assert error.code == "R101" and "cannot be unpacked" in error.message and str(path) in error.place
    assert not [made for made in Store.open().entries() if made.path.name.startswith("unpacked-")]


@pytest.mark.parametrize(
    ("name", "data", "says", "help"),
    [
        ("t.csv", gzip.compress(b"x\n1\n", mtime=0), "it is compressed by gzip", "call it t.csv.gz"),
        ("t.jsonl", lzma.compress(b'{"x": 1}\n'), "it is compressed by xz", "call it t.jsonl.xz"),
        ("t.csv.gz", bz2.compress(b"x\n1\n"), "it is compressed by bzip2", "call it t.csv.bz2"),
        ("t.csv.gz", b"x\n1\n", "it is not compressed by gzip, as its name says", "or call it t.csv"),
        ("t.csv.xz", b"PAR1" + bytes(20), "it is a Parquet file, not compressed by xz", "call it .parquet"),
        ("t.csv.gz", gzip.compress(b"PAR1" + bytes(20), mtime=0), "it is a Parquet file", "call it .parquet"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "the file is empty", "CSV"),
        (
            "t.csv.gz",
            gzip.compress("x,\xfc\n1,2\n".encode("latin-1"), mtime=0),
            "is not UTF-8",
            "UTF-8 t.csv > new-t.csv",
        ),
        ("t.csv.gz", gzip.compress(b"x\n1\n" + bytes(9 << 20), mtime=0), "line 3 is longer than", "CSV"),
        ("t.csv.xz", lzma.compress(b"x" * (9 << 20)), "line 1 is longer than", "CSV"),
        ("t.csv.xz", lzma.compress(b"x\n1\n")[:-2] + b"YX", "cannot be unpacked", "xz -t t.csv.xz tests it"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(
    tmp_path: Path, opened: Any, refused: Any, name: str, data: bytes, says: str, help: str
) -> None:
    (tmp_path / name).write_bytes(data)
    error = refused(lambda: one(opened, tmp_path / name))
    assert error.code == "R101" and says in error.message and help in error.help, error.render()


def test_a_bad_line_is_named_by_the_compressed_file(tmp_path: Path, opened: Any, refused: Any) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"x\n1\nspam\n"))
    error = refused(lambda: one(opened, path))
    assert f"{path}:3" in error.render() and "'spam' is not a number" in error.message


def test_a_file_is_unpacked_again_only_if_its_bytes_change(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "t.csv.gz"

    def made() -> int:
        return sum(each.path.name.startswith("unpacked-") for each in Store.open().entries())

    path.write_bytes(gzip.compress(b"x\n1\n", mtime=1))
    assert one(opened, path).rows == 1 and made() == 1
    os.utime(path, (5, 5))
    assert one(opened, path).rows == 1 and made() == 1
    path.write_bytes(gzip.compress(b"x\n1\n2\n", mtime=1))
    assert one(opened, path).rows == 2 and made() == 2


def stream(path: Path, table: Any, **options: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_stream(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table, max_chunksize=7)


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}], ids=["plain", "zstd"])
@pytest.mark.parametrize("name", ["s.arrows", "s.arrow"])
def test_a_stream_of_arrow_has_the_rows_of_the_file(
    tmp_path: Path, opened: Any, name: str, options: dict[str, Any]
) -> None:
    pa = pytest.importorskip("pyarrow")
    table = arrow_table(random_table(5, 40))
    table = table.set_column(3, "city", table["city"].dictionary_encode())
    stream(tmp_path / name, table, **options)
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as out:
        out.write_table(table, max_chunksize=7)
    assert rows(opened, tmp_path / name) == rows(opened, tmp_path / "t.arrow")


def test_a_stream_that_is_cut_off_or_goes_on_is_refused(tmp_path: Path, opened: Any, refused: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.arrows"
    stream(path, pa.table({"x": np.arange(20.0)}))
    good = path.read_bytes()
    for data, says in (
        (good[:-8], "the mark at the end of a stream is missing"),
        (good[:-200], "the mark at the end of a stream is missing"),
        (good + good, "other bytes follow its end"),
        (good[:40] + good[-8:], "it cannot be read"),
    ):
        path.write_bytes(data)
        error = refused(lambda: one(opened, path))
        assert error.code == "R101" and says in error.message and error.help, error.render()
    (tmp_path / "t.csv").write_bytes(good)
    assert refused(lambda: one(opened, tmp_path / "t.csv")).help == "call it .arrows"
