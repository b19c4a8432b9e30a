"""A random table with gaps, the same in every format of tables."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

Columns = dict[str, list[Any]]
CITIES: Final = ["Łódź", "São Paulo", 'a "b", c', "x;y\tz", "3", "3.5", "true", "NA", " space ", "東京"]


def random_table(seed: int, rows: int, gaps: float = 0.2) -> Columns:
    """Columns of each kind; a gap is None. ``price`` and ``kind`` have none."""
    draw = random.Random(seed)

    def column(value: Callable[[], Any], gaps: float = gaps) -> list[Any]:
        return [None if draw.random() < gaps else value() for _ in range(rows)]

    return {
        "area": column(lambda: draw.choice([draw.gauss(90, 40), draw.randrange(5) * 1.0, 1e-300, -7.25])),
        "rooms": column(lambda: draw.randrange(1, 9)),
        "garden": column(lambda: draw.random() < 0.5),
        "city": column(lambda: draw.choice(CITIES)),
        "built": column(lambda: date(1900, 1, 1) + timedelta(days=draw.randrange(60_000))),
        "price": column(lambda: abs(draw.gauss(100, 30)) + 1e-9, 0.0),
        "kind": column(lambda: draw.choice(["flat", "house", "farm"]), 0.0),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return random.Random(str(value)).choice(["true", "True"]) if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _csv(delimiter: str) -> Callable[[Path, Columns], None]:
    def write(path: Path, table: Columns) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            out.writerow(table)
            out.writerows(zip(*[[_text(value) for value in column] for column in table.values()]))

    return write


def _jsonl(path: Path, table: Columns) -> None:
    lines = []
    for number, row in enumerate(zip(*table.values())):
        record = {n: v.isoformat() if isinstance(v, date) else v for n, v in zip(table, row)}
        if number % 2:  # an absent key is a gap, as null is
            record = {n: v for n, v in record.items() if v is not None}
        lines.append(json.dumps(record, ensure_ascii=bool(number % 3)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def arrow_table(table: Columns) -> Any:
    import pyarrow

    return pyarrow.table({name: pyarrow.array(column) for name, column in table.items()})


def _parquet(path: Path, table: Columns) -> None:
    from pyarrow import parquet

    parquet.write_table(arrow_table(table), path, row_group_size=max(1, len(next(iter(table.values()))) // 3 - 1))


def _arrow(path: Path, table: Columns) -> None:
    import pyarrow

    with pyarrow.ipc.new_file(str(path), arrow_table(table).schema) as file:
        file.write_table(arrow_table(table), max_chunksize=5)


def _stream(path: Path, table: Columns) -> None:
    import pyarrow

    with pyarrow.ipc.new_stream(str(path), arrow_table(table).schema) as file:
        file.write_table(arrow_table(table), max_chunksize=5)


def _packed(path: Path, table: Columns) -> None:
    plain = path.with_suffix("")
    _jsonl(plain, table)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def _feather(path: Path, table: Columns) -> None:
    from pyarrow import feather

    feather.write_feather(arrow_table(table), str(path), compression="zstd")


#: The writers by the name of the file.
WRITERS: Final[Mapping[str, Callable[[Path, Columns], None]]] = {
    "t.csv": _csv(","),
    "semicolon.csv": _csv(";"),
    "t.tsv": _csv("\t"),
    "t.jsonl": _jsonl,
    "t.parquet": _parquet,
    "t.arrow": _arrow,
    "t.feather": _feather,
    "t.arrows": _stream,
    "packed.jsonl.gz": _packed,
}


def write_all(folder: Path, table: Columns) -> list[Path]:
    for name, write in WRITERS.items():
        write(folder / name, table)
    return [folder / name for name in WRITERS]


def floats(column: list[Any]) -> np.ndarray:
    """The column as f64 with NaN for gaps."""
    return np.array([np.nan if value is None else float(value) for value in column])
