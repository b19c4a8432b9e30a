"""CSV: which columns, which values, and what a hostile file can do (nothing)."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TABLE = '\ufeffid,x 1,y,label\r\n0,1.5,-2,3\r\n1, 2e1 ,.5,0\n2,"3",4.,1'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TABLE, newline="")
    return tmp_path / "t.csv"


def test_columns_by_name_list_and_range(table: Path, opened: Any) -> None:
    data = opened(
        a=(f"{table}:x 1", "f32", ("B",)),
        b=(f"{table}:y,x 1", "f64", ("B", 2)),
        c=(f"{table}:x 1..label", "f32", ("B", 1, 3)),
        label=(f"{table}:label", "i32", ("B",), (0, 4)),
    )
    batch = data.take(np.array([2, 0, 1]))
    assert batch["a"].tolist() == [3.0, 1.5, 20.0] and batch["a"].dtype == np.float32
    assert batch["b"].tolist() == [[4.0, 3.0], [-2.0, 1.5], [0.5, 20.0]]
    assert batch["c"].shape == (3, 1, 3) and batch["c"][1].tolist() == [[1.5, -2.0, 3.0]]
    assert batch["label"].tolist() == [1, 3, 0] and batch["label"].dtype == np.int32


def test_a_file_without_names_counts_its_columns(tmp_path: Path, opened: Any) -> None:
    (tmp_path / "t.csv").write_text("1,2,3\n4,5,6\n\n\n")
    data = opened(a=(f"{tmp_path}/t.csv:0..1", "f32", ("B", 2)), b=(f"{tmp_path}/t.csv:2", "i64", ("B",)))
    assert data.rows == 2 and data.take(np.arange(2))["b"].tolist() == [3, 6]


def test_a_large_file_is_read_by_row_with_the_same_values(
    table: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"a": (f"{table}:x 1..y", "f32", ("B", 2)), "label": (f"{table}:label", "i32", ("B",))}
    rows = np.array([1, 1, 2, 0])
    before = opened(**inputs).take(rows)
    monkeypatch.setattr("dslc.runtime.data.formats.table.AT_ONCE", 8)
    data = opened(**inputs)
    assert not data.columns["a"].rows.in_memory
    assert all(data.take(rows)[name].tobytes() == before[name].tobytes() for name in before)


FAULTS = {
    "no such column": ("id,y\n1,2\n", "R102", "no column `x`"),
    "two columns of one name": ("x,x\n1,2\n", "R101", "two columns are called `x`"),
    "empty": ("", "R101", "the file is empty"),
    "an empty first line": ("\nx\n1\n", "R101", "line 1: it is empty"),
    "Latin-1": ("x,M\xfcll\n1,2\n".encode("latin-1"), "R101", "line 1: the byte 0xfc at its position 4 is not UTF-8"),
    "UTF-16": ("x\n1\n".encode("utf-16"), "R101", "line 1: it is UTF-16"),
    "CR alone": ("x,y\r1,2\r", "R101", "line 1: a line end (CR) inside of a field"),
    "a decimal comma": ("x;y\n1,5;2\n", "R101", "'1,5' is not a number; write numbers as 1234.5"),
    "thousands": ('x,y\n"1,234.5",2\n', "R101", "'1,234.5' is not a number; write numbers as 1234.5"),
    "a currency": ("x\n$ 12\n", "R101", "'$ 12' is not a number; write numbers as 1234.5"),
    "a percentage": ("x\n12 %\n", "R101", "'12 %' is not a number; write numbers as 1234.5"),
    "a date": ("x\n2024-02-29\n", "R101", "`data.columns: {x: {date: [year]}}` would read dates"),
    "UTF-16 without its mark": ("x\n1\n".encode("utf-16-le"), "R101", "it seems to be UTF-16LE, not UTF-8"),
    "UTF-16BE without its mark": ("x\n1\n".encode("utf-16-be"), "R101", "it seems to be UTF-16BE"),
    "text after a quote": ('x\n"1"2\n', "R101", "text follows a closing quote"),
    "names alone": ("x\n", "R106", "no rows"),
    "a line too long": ("x\n" + "1" * (1 << 20) + "\n", "R101", "line 2 is longer"),
    "not UTF-8": (b"x\n\xff\xfe\n", "R101", "record 0"),
    "NUL": (b"x\n1\x002\n", "R101", "record 0"),
    "a word": (
        "x\n1\nspam\n",
        "R101",
        "record 1 cannot be read: 'spam' is not a number; `data.columns: {x: {categories: onehot}}` would",
    ),
    "a missing value": ("x,y\n,1\n", "R101", "`x` is missing; `data.columns: {x: {missing: median}}` would fill it"),
    "a field too many": ("x\n1\n2,3\n", "R101", "record 1 cannot be read: it has 2 fields, not 1"),
    "an empty line inside": ("x\n1\n\n2\n", "R101", "record 1 cannot be read: the line is empty"),
    "a quote that stays open": ('x\n"1\n2"\n', "R101", "record 0"),
    "an underscore": ("x\n1_0\n", "R101", "is not a number"),
    "other digits": ("x\n١\n", "R101", "is not a number"),
    "code": ("x\n__import__('os').system('touch pwned')\n", "R101", "is not a number"),
    "a formula": ("x\n=1+1\n", "R101", "is not a number"),
    "too large for f32": ("x\n1e39\n", "R101", "too large for float32"),
    "a huge exponent": ("x\n1e999999999\n", "R101", "too large"),
    "a gap in words": ("x\nNA\n", "R101", "`x` is missing; `data.columns: {x: {missing: median}}` would fill it"),
    "a column in capitals": ("X\n1\n", "R102", "there is no column `x`"),
    "a quote that nothing closes": ('x,y\n1,"a\n2,3\n', "R101", "record 0 cannot be read: a quoted field does not end"),
    "a text of two lines": ('x,y\n"a\nb",1\n', "R101", "'a\\nb' is not a number"),
    "a file of gzip": (b"\x1f\x8b\x08\x00", "R101", "it is compressed by gzip"),
    "a table of Excel": (b"PK\x03\x04\x14\x00", "R101", "a ZIP file, as those of Excel"),
    "a pointer of Git LFS": ("version https://git-lfs.github.com/spec/v1\n", "R101", "a pointer of Git LFS"),
    "a web page": ("<!DOCTYPE html>\n<html>\n", "R101", "a web page"),
    "Parquet": (b"PAR1\x15\x00", "R101", "it is a Parquet file"),
    "NaN": ("x\n1\nnan\n", "R103", "record 1: the value nan is not finite"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_hostile_tables_are_refused_fast_and_small(
    tmp_path: Path, case: str, opened: Any, refused: Any, allowed: Callable[[float, float], bool]
) -> None:
    content, code, says = FAULTS[case]
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    tracemalloc.start()
    begun = time.process_time()
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:x", "f32", ("B",))))
    assert allowed(time.process_time() - begun, 2) and tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert error.code == code and says in error.message, error.render()
    assert len(error.render()) < 600 and not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ("1.5", "R101", "'1.5' is not an integer"),
        ("1e-3", "R101", "'1e-3' is not an integer"),
        ("inf", "R101", "'inf' is not an integer"),
        ("1e999999999", "R101", "does not fit 64 bits"),
        ("9223372036854775808.0", "R101", "does not fit 64 bits"),
        ("123456789012345678901234", "R101", "does not fit 64 bits"),
        ("2024-02-29", "R101", "the date '2024-02-29' is not an integer; `data.columns: {x: {date: [year]}}`"),
        ("9223372036854775808", "R101", "does not fit 64 bits"),
        ("3000000000", "R103", "int32 holds"),
        ("4", "R103", "4 classes, 0 to 3"),
        ("-1", "R103", "the value -1"),
    ],
)
def test_labels_are_integers_in_range(
    tmp_path: Path, value: str, code: str, says: str, opened: Any, refused: Any
) -> None:
    (tmp_path / "t.csv").write_text(f"x\n3\n{value}\n")
    limits = ((0, 4),) if code == "R103" and "3000" not in value else ()
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:x", "i32", ("B",), *limits)))
    assert error.code == code and says in error.message


def test_whole_floats_are_integers_where_they_are_exact(tmp_path: Path, opened: Any) -> None:
    """As pandas writes a column of integers that once had a gap; a large file is read by row in the same way."""
    texts = ["3.0", "-2.000", "4e2", " 7. ", "1.5e1", "9007199254740993.0", "5"]
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{text},0.5\n" for text in texts))
    data = opened(x=(f"{tmp_path}/t.csv:x", "i64", ("B",)))
    assert data.take(np.arange(7))["x"].tolist() == [3, -2, 400, 7, 15, 9007199254740993, 5]


def test_bad_lines_can_be_skipped_up_to_a_number(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("x,y\n0,0\nspam,1\n2,eggs\n3,3\nx,x\n")
    inputs = {name: (f"{tmp_path}/t.csv:{name}", "f32", ("B",)) for name in "xy"}
    notes: list[str] = []
    data = opened(**inputs, skip=3, notes=notes)
    assert data.rows == 2 and data.index.tolist() == [0, 3]
    assert len(notes) == 3 and f"{tmp_path}/t.csv:3: record 1 is skipped" in notes[0] and "(3 of 3" in notes[2]
    assert refused(lambda: opened(**inputs, skip=2)).code == "R101"


def test_the_number_of_columns_must_be_that_of_a_row(table: Path, opened: Any, refused: Any) -> None:
    error = refused(lambda: opened(a=(f"{table}:x 1..y", "f32", ("B", 3))))
    assert error.code == "R102" and "gives 2 columns" in error.message
    error = refused(lambda: opened(a=(f"{table}:lable", "f32", ("B",))))
    assert error.help == "did you mean `label`?"
    error = refused(lambda: opened(a=(f"{table}:7", "f32", ("B",))))
    assert "columns have numbers only if" in error.help


def test_plain_lines_and_quoted_ones_give_the_same_bits(tmp_path: Path, opened: Any, fuzz_seed: int) -> None:
    """Lines of plain numbers go another way, which must not show."""
    rng = np.random.default_rng(fuzz_seed)
    values = rng.standard_normal((300, 3)) * 10.0 ** rng.integers(-30, 30, (300, 3))
    lines = [[repr(float(v)) for v in row] for row in values]
    whole = rng.integers(-(2**62), 2**62, (300, 2)).tolist() + [[2**53, -(2**53)], [2**53 + 1, 5]]
    for dtype, rows in (("f32", lines), ("f64", lines), ("i64", [[str(v) for v in row] for row in whole])):
        found = []
        for quoted in (False, True):
            quote = '"{}"' if quoted else "{}"
            text = "\r\n".join(",".join(quote.format(field) for field in row) for row in rows)
            (tmp_path / "t.csv").write_text(text, newline="")
            data = opened(x=(f"{tmp_path}/t.csv:0..{len(rows[0]) - 1}", dtype, ("B", len(rows[0]))))
            found.append(data.take(np.arange(len(rows)))["x"])
        exact = np.array([[float(v) if dtype != "i64" else int(v) for v in row] for row in rows], found[0].dtype)
        assert found[0].tobytes() == found[1].tobytes() == exact.tobytes()


@pytest.mark.parametrize(
    "line", ["1,,3", "1,2", "1,2,3,4", "1,-,3", "1,1e,3", "1,--2,3", "1,2-3,3", "1,.,3", "e,e,e", ","]
)
def test_a_line_of_the_right_characters_that_is_no_record(tmp_path: Path, line: str, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text(f"a,b,c\n1,2,3\n{line}\n4,5,6\n")
    for dtype in ("f32", "i32"):
        error = refused(lambda dtype=dtype: opened(x=(f"{tmp_path}/t.csv:a..c", dtype, ("B", 3))))
        assert error.code == "R101" and "record 1 cannot be read" in error.message


def test_lines_whose_lengths_make_up_for_each_other(tmp_path: Path, opened: Any) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2\n3,4,5,6\n7,8,9\n")
    data = opened(x=(f"{tmp_path}/t.csv:a..c", "f32", ("B", 3)), skip=2)
    assert data.index.tolist() == [2] and data.take(data.index)["x"].tolist() == [[7, 8, 9]]


def test_integers_past_those_of_a_float_stay_exact(tmp_path: Path, opened: Any) -> None:
    values = [2**53 + 1, -(2**53) - 1, 2**63 - 1, 1]
    for value in values:
        (tmp_path / "t.csv").write_text(f"a\n{value}\n5\n")
        data = opened(x=(f"{tmp_path}/t.csv:a", "i64", ("B",)))
        assert data.take(np.arange(2))["x"].tolist() == [value, 5]


def test_a_bad_line_of_a_later_file_is_named_by_its_row_in_all(
    tmp_path: Path, opened: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dslc.runtime.data.formats.table.AT_ONCE", 4)
    (tmp_path / "t1.csv").write_text("a\n1\n2\n3\n")
    (tmp_path / "t2.csv").write_text("a\n4\nspam\n6\n")
    data = opened(x=(f"{tmp_path}/t*.csv:a", "f32", ("B",)))
    assert data.take(np.array([5, 0, 3]))["x"].tolist() == [6, 1, 4]
    error = refused(lambda: data.take(np.array([0, 4])))
    assert "record 4 cannot be read" in error.message and str(error.place) == f"{tmp_path}/t2.csv:3"


@pytest.mark.parametrize("name", ["T.CSV", "T.Csv", "T.TSV", "T.JSONL", "T.NPY"])
def test_suffixes_may_have_capital_letters(name: str, tmp_path: Path, opened: Any) -> None:
    path = tmp_path / name
    if name == "T.NPY":
        with path.open("wb") as file:
            np.save(file, np.array([1, 2], np.float32))
    else:
        lines = {"T.TSV": "x\ty\n1\t3\n2\t4\n", "T.JSONL": '{"x": 1}\n{"x": 2}\n'}
        path.write_text(lines.get(name, "x,y\n1,3\n2,4\n"))
    key = "" if name == "T.NPY" else ":x"
    assert opened(x=(f"{path}{key}", "f32", ("B",))).take(np.arange(2))["x"].tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_truth_values_are_numbers_as_in_other_formats(dtype: str, tmp_path: Path, opened: Any) -> None:
    (tmp_path / "t.csv").write_text("x\nTRUE\nFalse\n true\n1\n0\n")
    (tmp_path / "t.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in ("true", "false", '"True"', 1, 0)))
    for name in ("t.csv", "t.jsonl"):
        assert opened(x=(f"{tmp_path}/{name}:x", dtype, ("B",))).take(np.arange(5))["x"].tolist() == [1, 0, 1, 1, 0]


def test_a_field_may_be_as_long_as_a_line(tmp_path: Path, opened: Any) -> None:
    (tmp_path / "t.csv").write_text("x,text\n1," + "a" * 1_000_000 + "\n2,b\n")
    assert opened(x=(f"{tmp_path}/t.csv:x", "f32", ("B",))).take(np.arange(2))["x"].tolist() == [1, 2]


def test_columns_that_are_not_read_may_share_a_name(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("x,y,,\n1,3,,\n2,4,,\n")
    assert opened(x=(f"{tmp_path}/t.csv:x..y", "f32", ("B", 2))).take(np.arange(2))["x"].tolist() == [[1, 3], [2, 4]]
    (tmp_path / "u.csv").write_text("x,y,y,z\n1,2,3,4\n")
    error = refused(lambda: opened(x=(f"{tmp_path}/u.csv:x..z", "f32", ("B", 4))))
    assert "two columns are called `y`" in error.message


def test_the_columns_that_a_table_has_are_shown_apart(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("y|z\n1|2\n")
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:x", "f32", ("B",))))
    about = "the first line of a CSV is its header, and between fields are commas, semicolons or tabs"
    assert error.help == f"it has `y|z`; {about}"


def test_a_name_in_a_table_without_a_header(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:x", "f32", ("B",))))
    assert error.help == "the first line is no header, because it holds numbers alone: columns are 0 to 1"
