"""Lists of numbers in tables: as many columns, the same in every format that holds lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, parquet  # noqa: E402

ROWS, WIDTH = 150, 6


def rows_of(seed: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    emb, ids = rng.normal(size=(ROWS, WIDTH)).astype(np.float32), rng.integers(0, 50, (ROWS, 4))
    return [{"y": float(at), "emb": emb[at].tolist(), "ids": ids[at].tolist()} for at in range(ROWS)]


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def arrow(rows: list[dict[str, Any]], emb: Any) -> Any:
    return pa.table(
        {
            "y": pa.array([row["y"] for row in rows]),
            "emb": pa.array([row["emb"] for row in rows], emb),
            "ids": pa.array([row["ids"] for row in rows], pa.large_list(pa.int32())),
        }
    )


def parquet_file(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(arrow(rows, pa.list_(pa.float32())), path, row_group_size=40)


def arrow_file(path: Path, rows: list[dict[str, Any]]) -> None:
    feather.write_feather(arrow(rows, pa.list_(pa.float32(), WIDTH)), path, compression="lz4", chunksize=40)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "t.jsonl": lines, "t.parquet": parquet_file, "t.arrow": arrow_file
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_a_list_is_as_many_columns(name: str, tmp_path: Path, opened: Any) -> None:
    rows = rows_of()
    WRITERS[name](tmp_path / name, rows)
    file = tmp_path / name
    data = opened(
        all=(f"{file}:emb", "f32", ("B", 2, 3)),
        some=(f"{file}:emb[1]..emb[2],y", "f32", ("B", 3)),
        many=(f"{file}:y..ids", "f32", ("B", 1 + WIDTH + 4)),
        ids=(f"{file}:ids", "i32", ("B", 4), (0, 50)),
    )
    at = np.array([149, 0, 41, 39, 80, 41])
    got = data.take(at)
    emb = np.array([rows[i]["emb"] for i in at], np.float32)
    ids, y = np.array([rows[i]["ids"] for i in at]), at.astype(np.float32)[:, None]
    assert (got["all"] == emb.reshape(-1, 2, 3)).all() and (got["ids"] == ids).all()
    assert (got["some"] == np.concatenate([emb[:, 1:3], y], 1)).all()
    assert (got["many"] == np.concatenate([y, emb, ids.astype(np.float32)], 1)).all()


@pytest.mark.parametrize("name", WRITERS)
def test_a_list_that_is_missing_is_a_bad_row(name: str, tmp_path: Path, opened: Any, refused: Any) -> None:
    rows = rows_of()
    if name != "t.arrow":
        rows[0]["emb"] = None  # the first row does not tell the numbers
    rows[70]["emb"] = None
    WRITERS[name](tmp_path / name, rows)
    wanted = {"x": (f"{tmp_path / name}:emb", "f32", ("B", WIDTH)), "y": (f"{tmp_path / name}:y", "f32", ("B",))}
    assert "is missing" in refused(lambda: opened(**wanted)).message
    data = opened(skip=3, **wanted)
    assert 70 not in data.index and data.rows == ROWS - (1 if name == "t.arrow" else 2)
    assert (data.take(np.array([ROWS - 1]))["x"] == np.array(rows[-1]["emb"], np.float32)).all()


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_list_of_another_length_is_told(name: str, tmp_path: Path, opened: Any, refused: Any) -> None:
    rows = rows_of()
    rows[60]["emb"] = rows[60]["emb"][:4]
    WRITERS[name](tmp_path / name, rows)
    error = refused(lambda: opened(x=(f"{tmp_path / name}:emb", "f32", ("B", WIDTH))))
    assert error.code == "R101" and "4" in error.message and "6" in error.message, error.render()
    assert (error.help == "pad the lists to one length") is (name == "t.parquet")
    error = refused(lambda: opened(x=(f"{tmp_path / name}:emb", "f32", ("B", 5))))
    assert error.code == "R102" and "6 columns" in error.message and "5 values" in error.message, error.render()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"x": [[1, 2], [3, 4]]}', None),
        ('{"x": [1, 2, 3, 4]}', "a list of shape [4]; that of the first line has the shape [2, 2]"),
        ('{"x": [[1, 2], [3]]}', "is no list of lists of one length"),
        ('{"x": 7}', "is no list of lists of one length"),
        ('{"x": [[1, 2], [3, {"a": 4}]]}', "is a list or an object"),
        ('{"x": [[1, 2], [3, "spam"]]}', "is not a number"),
        ('{"x": [[1, 2], [3, null]]}', "is missing"),
    ],
)
def test_nested_lists_have_one_shape(line: str, says: str | None, tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"x": [[5, 6], [7, 8]]}}\n{line}\n')
    wanted = {"x": (f"{tmp_path}/t.jsonl:x", "f32", ("B", 2, 2))}
    if says is None:
        assert opened(**wanted).take(np.arange(2))["x"].tolist() == [[[5, 6], [7, 8]], [[1, 2], [3, 4]]]
    else:
        error = refused(lambda: opened(**wanted))
        assert error.code == "R101" and says in error.message and error.place.endswith("t.jsonl:2"), error.render()


def nested(kind: str, cells: Any) -> Any:
    """Matrices of the shape [2, 3] as a column of Arrow; None is a missing one."""
    if kind == "tensor":
        flat = pa.FixedSizeListArray.from_arrays(pa.array(np.array(cells, np.float32).ravel()), 6)
        return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 3]), flat)
    lists = {
        "list": pa.list_(pa.list_(pa.float32())),
        "large": pa.large_list(pa.list_(pa.uint8(), 3)),
        "fixed": pa.list_(pa.list_(pa.float64(), 3), 2),
    }
    return pa.array(cells, lists[kind])


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "tensor"])
@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_nested_lists_of_arrow_are_read_row_by_row(name: str, kind: str, tmp_path: Path, opened: Any) -> None:
    cells = np.arange(120).reshape(20, 2, 3)
    table = pa.table({"x": nested(kind, cells.tolist())})
    if name == "t.parquet":
        parquet.write_table(table, tmp_path / name, row_group_size=8)
    else:
        feather.write_feather(table, tmp_path / name, compression="lz4", chunksize=8)
    data = opened(x=(f"{tmp_path / name}:x", "f32", ("B", 2, 3)), y=(f"{tmp_path / name}:x[4]", "f32", ("B",)))
    at = np.array([19, 0, 7, 8])
    got = data.take(at)
    assert (got["x"] == cells[at]).all() and (got["y"] == cells[at, 1, 1]).all()


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([[[1, 2, 3], [4, 5, 6]], None], "is missing"),
        ([[[1, 2, 3], [4, 5, 6]], [None, [4, 5, 6]]], "is missing"),
        ([[[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, None, 6]]], "is missing"),
        ([[[1, 2, 3], [4, 5, 6]], [[1, 2, 3]]], "a list has 1 lists, the first one 2"),
        ([[[1, 2, 3], [4, 5, 6]], [[1, 2], [4, 5, 6]]], "a list has 2 numbers, the first one 3"),
    ],
)
def test_nested_lists_of_arrow_that_do_not_fit(
    cells: Any, says: str, tmp_path: Path, opened: Any, refused: Any
) -> None:
    parquet.write_table(pa.table({"x": nested("list", cells)}), tmp_path / "t.parquet")
    error = refused(lambda: opened(x=(f"{tmp_path}/t.parquet:x", "f32", ("B", 2, 3))))
    assert error.code == "R101" and says in error.message, error.render()


def test_a_name_that_is_not_there_is_answered_with_the_names_of_lists(
    tmp_path: Path, opened: Any, refused: Any
) -> None:
    lines(tmp_path / "t.jsonl", rows_of())
    error = refused(lambda: opened(x=(f"{tmp_path}/t.jsonl:spam", "f32", ("B", WIDTH))))
    assert error.help == "it has `y`, `emb`, `ids`"
    assert "did you mean `emb`?" in refused(lambda: opened(x=(f"{tmp_path}/t.jsonl:embd", "f32", ("B", 6)))).help
