"""What a hostile table can do in each format: be refused or read, fast, small, and never end this process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tables.written import WRITERS, random_table

from dslc.base.errors import DataError, EnvironmentFault
from dslc.runtime.data import library_process
from dslc.runtime.data.tables import arrow_table

SOAK = bool(os.environ.get("DSLC_SOAK"))
DEEP = "[" * 100_000

LINES: dict[str, tuple[str | bytes, str, str]] = {
    "empty": ("", "R101", "the file is empty"),
    "not JSON": ("a,b\n1,2\n", "R101", "line 1: it is not JSON"),
    "a number": ("1\n", "R101", "line 1: it is not a JSON object"),
    "a list": ("[1]\n", "R101", "line 1: the file is one list, not one object per line"),
    "a list of objects": ('[{"x": 1}]\n', "R101", "line 1: the file is one list"),
    "a list over several lines": ('[{"x": 1},\n{"x": 2}]\n', "R101", "line 1: the file is one list"),
    "an object over several lines": ('{\n "x": 1\n}\n', "R101", "line 1: an object is written over several lines"),
    "no such column": ('{"y": 1}\n', "R102", "no column `x`"),
    "a name twice": ('{"x": 1}\n{"x": 1, "x": 2}\n', "R101", "a name occurs twice"),
    "NaN": ('{"x": 1}\n{"x": NaN}\n', "R101", "NaN is not a JSON number; a gap is `null`"),
    "a word": ('{"x": 1}\n{"x": "spam"}\n', "R101", "record 1 cannot be read: 'spam' is not a number"),
    "a list as a value": ('{"x": ["a"]}\n', "R101", "is a list or an object"),
    "an object as a value": ('{"x": {"a": 1}}\n', "R101", "is a list or an object"),
    "null": ('{"x": 1}\n{"x": null}\n', "R101", "`x` is missing"),
    "a key that is absent": ('{"x": 1}\n{"y": 1}\n', "R101", "`x` is missing"),
    "deep nesting": (f'{{"x": 1}}\n{{"x": {DEEP}\n', "R101", "nesting"),
    "deep nesting in line 1": (DEEP, "R101", "line 1: nesting"),
    "a long number": ('{"x": ' + "1" * 100_000 + "}\n", "R101", "line 1: "),
    "a long integer": ('{"x": 1}\n{"x": ' + "1" * 5000 + "}\n", "R101", "an integer has 5000 digits"),
    "an infinite number": ('{"x": 1e999}\n', "R103", "is not finite"),
    "too large for f32": ('{"x": 1e39}\n', "R101", "too large for float32"),
    "not UTF-8": (b'{"x": 1}\n{"x": "\xff"}\n', "R101", "record 1"),
    "a lone surrogate": ('{"x": 1}\n{"x": "\\ud800"}\n', "R101", "is not a number"),
    "an empty line inside": ('{"x": 1}\n\n{"x": 1}\n', "R101", "record 1"),
    "a line too long": ('{"x": 1}\n{"x": "' + "a" * (1 << 20) + '"}\n', "R101", "line 2 is longer"),
    "many names": ("{" + ",".join(f'"{i}":1' for i in range(100_000)) + "}\n", "R10", ""),
    "no rows": ("\n\n", "R10", ""),
}


def measured(attempt: Callable[[], object], refused: Any, allowed: Callable[[float, float], bool]) -> DataError:
    """The DataError of the attempt, which may take 2 s and little memory of this process."""
    tracemalloc.start()
    begun = time.process_time()
    try:
        error: DataError = refused(attempt)
        assert allowed(time.process_time() - begun, 2) and tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert len(error.render()) < 900
    return error


@pytest.mark.parametrize("case", LINES)
def test_hostile_json_lines(
    tmp_path: Path, case: str, opened: Any, refused: Any, allowed: Callable[[float, float], bool]
) -> None:
    content, code, says = LINES[case]
    (tmp_path / "t.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    error = measured(lambda: opened(x=(f"{tmp_path}/t.jsonl:x", "f32", ("B",))), refused, allowed)
    assert error.code.startswith(code) and says in error.message, error.render()


def _nested(path: Path) -> None:
    parquet.write_table(pa.table({"x": pa.array([["a"], ["b"]])}), path)


def _twice(path: Path) -> None:
    parquet.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"]), path)


def _footer(path: Path) -> None:
    WRITERS["t.parquet"](path, random_table(1, 9))
    data = path.read_bytes()
    path.write_bytes(data[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1")


def _bomb(path: Path) -> None:
    """2 GiB of equal values in a few KiB."""
    rows = 1 << 24
    array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["x" * 128]))
    parquet.write_table(pa.table({"x": array}), path, row_group_size=rows, compression="zstd")


def _rows(path: Path) -> None:
    rows = (1 << 24) + 1
    parquet.write_table(pa.table({"x": pa.array(np.zeros(rows, np.int8))}), path, row_group_size=rows)


BINARY: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "empty": (lambda path: path.write_bytes(b""), "R101", "the file is empty"),
    "text": (lambda path: path.write_bytes(b"x\n1\n"), "R101", "begins and ends with"),
    "only the magic": (lambda path: path.write_bytes(b"PAR1PAR1"), "R101", ""),
    "a long footer": (_footer, "R101", "its directory would be"),
    "no such column": (lambda path: WRITERS["t.parquet"](path, {"area": [1.0]}), "R102", "no column `x`"),
    "a list as a value": (_nested, "R102", "the column `x` is list<element: string>"),
    "a name twice": (_twice, "R101", "two columns are called"),
    "a bomb": (_bomb, "R101", ""),
    "a row group with too many rows": (_rows, "R101", "write smaller row groups"),
    "truncated": (lambda path: path.write_bytes(b"PAR1" + bytes(1000) + b"PAR1"), "R101", ""),
}


@pytest.mark.parametrize("case", BINARY)
def test_hostile_parquet(
    tmp_path: Path, case: str, opened: Any, refused: Any, allowed: Callable[[float, float], bool]
) -> None:
    write, code, says = BINARY[case]
    write(tmp_path / "t.parquet")
    error = measured(lambda: opened(x=(f"{tmp_path}/t.parquet:x", "f32", ("B",))), refused, allowed)
    assert error.code == code and says in error.message, error.render()


def test_other_files_with_the_suffix_of_arrow_are_refused(tmp_path: Path, opened: Any, refused: Any) -> None:
    WRITERS["t.parquet"](tmp_path / "t.arrow", random_table(1, 3))
    error = refused(lambda: opened(x=(f"{tmp_path}/t.arrow:area", "f32", ("B",))))
    assert error.code == "R101" and "it is a Parquet file" in error.message
    (tmp_path / "t.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    error = refused(lambda: opened(x=(f"{tmp_path}/t.feather:area", "f32", ("B",))))
    assert "Feather version 1" in error.message


def test_a_decoder_that_crashes_or_hangs_is_a_refusal(
    tmp_path: Path, opened: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["t.parquet"](tmp_path / "t.parquet", random_table(1, 9))
    stub = tmp_path / "stub"
    crash = "#!/bin/sh\nkill -SEGV $$\n"
    for script, says in ((crash, "has ended"), ("#!/bin/sh\nexec sleep 600\n", "gave no answer for 0.2 s")):
        stub.write_text(script)
        stub.chmod(0o755)
        monkeypatch.setattr(arrow_table.sys, "executable", str(stub))
        monkeypatch.setattr(library_process, "_PATIENCE", 0.2 if "sleep" in script else 60.0)
        error = refused(lambda: opened(x=(f"{tmp_path}/t.parquet:area", "f32", ("B",))))
        assert error.code == "R101" and says in error.message


FORKED = """
import os, sys
from pathlib import Path
import numpy as np
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.arrow_table import ArrowTable
table = ArrowTable(Source(Path(sys.argv[1]), None, "t"), "parquet")
child = os.fork()
for column in (0, 1) * 10:
    table._cache.clear()
    [found], _ = table.read(np.arange(table.count), [column])
    assert found.values.tolist() == [float(10 * column + row) for row in range(6)], found.values
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both read")
"""


def test_after_a_fork_each_side_has_a_decoder_of_its_own(tmp_path: Path) -> None:
    """Both would read the answers of one process, each a part of them."""
    columns = {"a": np.arange(6.0), "b": np.arange(10.0, 16.0)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=2)
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "t.parquet")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.stdout == "both read\n" * 2, ran.stderr


def test_without_pyarrow_the_error_names_the_extra(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["t.parquet"](tmp_path / "t.parquet", random_table(1, 9))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="need pyarrow") as caught:
        opened(x=(f"{tmp_path}/t.parquet:area", "f32", ("B",)))
    assert caught.value.code == "R205" and "dslc[parquet]" in str(caught.value.help)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather", "t.arrows"])
def test_changed_bytes_are_refused_or_read(tmp_path: Path, name: str, opened: Any, fuzz_seed: int) -> None:
    """Mutated files: each is refused with a DataError, or gives rows; this process survives them all."""
    draw = random.Random(fuzz_seed)
    path = tmp_path / name
    WRITERS[name](path, {**random_table(fuzz_seed, 40, 0.1), "area": [float(row) for row in range(40)]})
    good, kinds = path.read_bytes(), {"refused": 0, "read": 0}
    for _ in range(150 if SOAK else 6):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 5)):
            # The directory at the end decides most.
            at = draw.randrange(len(data)) if draw.random() < 0.5 else len(data) - 1 - draw.randrange(len(data) // 3)
            data[at] = draw.choice([0, 255, 127, 128, draw.randrange(256)])
        if draw.random() < 0.2:
            cut = draw.randrange(8, len(data))
            del data[cut : cut + draw.randrange(64)]
        path.write_bytes(data)
        try:
            rows = opened(
                columns="city: {categories: index, missing: mode}\nbuilt: {date: [year], missing: '1970-01-01'}",
                x=(f"{path}:area", "f64", ("B",)),
                city=(f"{path}:city", "f32", ("B",)),
                built=(f"{path}:built", "f32", ("B",)),
            ).rows
            kinds["read"] += 1
            assert rows <= 1 << 24
        except DataError as error:
            assert error.code in ("R101", "R102", "R103", "R104", "R106"), error.render()
            kinds["refused"] += 1
    print(kinds)


def test_changed_lines_are_refused_or_read(tmp_path: Path, opened: Any, fuzz_seed: int) -> None:
    draw = random.Random(fuzz_seed)
    for name in ("t.csv", "t.tsv", "t.jsonl"):
        path = tmp_path / name
        WRITERS[name](path, random_table(fuzz_seed, 12))
        good = path.read_bytes()
        marks = [b'"', b",", b"\n", b"\x00", b"\xff", b"{", b"[", b"1e999"]
        for _ in range(600 if SOAK else 60):
            data = bytearray(good)
            for _ in range(draw.randrange(1, 6)):
                at = draw.randrange(len(data))
                data[at : at + draw.randrange(2)] = draw.choice(marks)
            path.write_bytes(data)
            try:
                opened(columns="city: {categories: index, missing: mode}", skip=3, x=(f"{path}:city", "i32", ("B",)))
            except DataError as error:
                assert error.code in ("R101", "R102", "R104", "R106"), error.render()


def test_categories_of_a_hostile_file_are_bounded(tmp_path: Path, opened: Any, refused: Any) -> None:
    with (tmp_path / "t.jsonl").open("w") as file:
        file.writelines(json.dumps({"id": f"row {row}", "long": "x" * 300}) + "\n" for row in range(10_001))
    error = refused(lambda: opened(columns="id: {categories: onehot}", x=(f"{tmp_path}/t.jsonl:id", "f32", ("B", 9))))
    assert error.code == "R104" and "more than 10000 categories" in error.message
    error = refused(lambda: opened(columns="long: {categories: index}", x=(f"{tmp_path}/t.jsonl:long", "i32", ("B",))))
    assert error.code == "R101" and "longer than 256 characters" in error.message
