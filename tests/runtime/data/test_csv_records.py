"""CSV files whose quoted fields hold line ends: records, their places, and what a stray quote costs."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import numpy as np
import pytest

from dslc.runtime.data.source import Source
from dslc.runtime.data.tables import records
from dslc.runtime.data.tables.csv_table import CsvTable

PIECES = ["a", "ä", '"', '""', "\n", "\r\n", ",", ";", "\t", " ", "1.5", "\n\n", '",', ',"', "#"]


def table_of(path: Path, text: str) -> CsvTable:
    path.write_bytes(text.encode())
    return CsvTable(Source(path, "t.csv:x", "x"))


def rows_of(table: CsvTable, order: list[int] | None = None) -> tuple[list[list[str]], dict[int, str]]:
    rows = np.array(range(table.count) if order is None else order, np.int64)
    raws, errors = table.read(rows, range(len(table.names)))
    return [list(row) for row in zip(*(raw.values.tolist() for raw in raws))], errors


@pytest.mark.parametrize("part", [7, 64, 1 << 20])  # bytes that are searched at once
def test_records_are_those_of_the_csv_module(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch, fuzz_seed: int
) -> None:
    monkeypatch.setattr(records, "LONGEST", max(part, 200))
    draw = random.Random(fuzz_seed)
    for _ in range(60):
        width, delimiter = draw.randint(1, 4), draw.choice(",;\t")
        delimiter = delimiter if width > 1 else ","
        cells = [["".join(draw.choices(PIECES, k=draw.randint(1, 4))) for _ in range(width)] for _ in range(20)]
        out = io.StringIO(newline="")
        ends, quoting = draw.choice(["\n", "\r\n"]), draw.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
        writer = csv.writer(out, lineterminator=ends, quoting=quoting, delimiter=delimiter)
        names = [f"the\nname {at}" for at in range(width)]
        writer.writerows([names, *cells])
        table = table_of(tmp_path / "t.csv", out.getvalue())
        assert list(table.names) == names
        assert rows_of(table) == (cells, {})
        order = draw.sample(range(20), 20)
        assert rows_of(table, order) == ([cells[row] for row in order], {})
        text = out.getvalue()
        for row in order:
            before = io.StringIO(newline="")
            csv.writer(before, lineterminator=ends, quoting=quoting, delimiter=delimiter).writerows(
                [names, *cells[:row]]
            )
            assert text.startswith(before.getvalue())
            assert table.place(row) == f"{tmp_path}/t.csv:{before.getvalue().count(chr(10)) + 1}"


@pytest.mark.parametrize(
    ("text", "rows", "bad"),
    [
        ('x,y\n1,"a\n2,b\n3,c\n', [None, "b", "c"], [0]),
        ('x,y\n1,"a\n2,"b"\n3,c\n', [None, "b", "c"], [0]),
        ('x,y\n1,5" pipe\n2,6"\n3,"d ""e"""\n', ['5" pipe', '6"', 'd "e"'], []),
        ('x,y\n1,"a" b\n2,"c\nd"\n', [None, "c\nd"], [0]),
        ('x,y\n1,a\n2,"', ["a", None], [1]),
        ('x,y\n1,""\n2,"\n"', ["", "\n"], []),
        ('\ufeff"x","y"\n1,"a\nb"\n', ["a\nb"], []),
    ],
)
def test_a_stray_quote_is_a_fault_of_its_line(
    tmp_path: Path, text: str, rows: list[str | None], bad: list[int]
) -> None:
    table = table_of(tmp_path / "t.csv", text)
    found, errors = rows_of(table)
    assert [row[1] for row in found] == rows and sorted(errors) == bad


@pytest.mark.parametrize("line", ['x,"\n', ',""\n', '"",' * 40 + "\n", '"' * 7 + "\n", 'a"b,"c\n'])
def test_the_search_is_linear(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    found = records._line_end

    def counted(data: bytes, at: int, limit: int) -> int:
        nonlocal seen
        end = found(data, at, limit)
        seen += end - at
        return end

    monkeypatch.setattr(records, "_line_end", counted)
    monkeypatch.setattr(records, "LONGEST", 4096)
    data = line.encode() * (40_000 // len(line))
    ends = np.concatenate([ends for ends, _ in records.record_ends(data, ",")])
    assert seen <= 4 * len(data) and np.all(np.diff(ends) > 0)


def test_a_field_that_is_too_long_is_a_bad_row(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t.csv", 'x,y\n1,"' + "a\n" * (1 << 19) + '"\n')
    _, errors = rows_of(table, [0])
    assert errors[0].startswith("a quoted field does not end in the file, or in 1 MiB of it")
