"""A value that does not fit is named with its file, line and column, also where several columns fill a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.data.entries.values import Converter
from dslc.runtime.data.source import Source
from dslc.runtime.data.wanted import Wanted

ROWS = [(1.5, 2, "a"), (2.5, 3, "b"), (3.5, 4, "a")]


def written(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    """The rows as the columns x, y, z of a CSV or JSON lines file."""
    if path.suffix == ".csv":
        path.write_text("x,y,z\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    else:
        path.write_text("".join(json.dumps(dict(zip("xyz", row))) + "\n" for row in rows))
    return path


@pytest.fixture(params=["t.csv", "t.jsonl"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / str(request.param)


def line(path: Path, row: int) -> str:
    return f"{path}:{row + 1 + (path.suffix == '.csv')}"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("columns", ["", "y: {missing: median}", "z: {categories: onehot}"])
def test_an_integer_that_a_float_would_round_is_refused(
    path: Path, columns: str, large: bool, opened: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of arrays are; a scale is applied in 64 bits, so it accepts them."""
    written(path, [*ROWS, (4.5, 2**24 + 1, "b")])
    key, width = ("x,y,z", 4) if "z" in columns else ("x,y", 2)
    given = (f"{path}:{key}", "f32", ("B", width))
    if large:
        for module in ("formats.table", "tables.csv_table", "tables.json_table"):
            monkeypatch.setattr(f"dslc.runtime.data.{module}.AT_ONCE", 8)
    error = refused(lambda: opened(x=given, columns=columns).take(np.arange(4)))
    assert error.code == "R101" and error.place == line(path, 3), error.render()
    assert "`y` is 16777217, but float32 holds integers exactly up to 16777216" in error.message
    assert "`data.columns: {y: {scale: standard}}` would scale it first" in error.message
    assert opened(x=(given[0], "f64", given[2]), columns=columns).rows == 4
    scaled = opened(x=(f"{path}:x,y", "f32", ("B", 2)), columns="y: {scale: minmax}")
    assert scaled.take(np.array([3]))["x"].tolist() == [[4.5, 1.0]]


@pytest.mark.parametrize("value", [2**24, -(2**24), 16777217.5, 1e30])
def test_exact_integers_and_floats_are_read(path: Path, value: float, opened: Any) -> None:
    written(path, [*ROWS, (4.5, value, "b")])
    found = opened(x=(f"{path}:x,y", "f32", ("B", 2))).take(np.array([3]))["x"]
    assert found.tolist() == [[4.5, float(np.float32(value))]]


@pytest.mark.parametrize(
    ("value", "says"),
    [("1,5", "`y`: '1,5' is not a number"), (1e39, "`y`: 1e+39 is too large for float32")],
)
def test_a_reason_names_its_column(tmp_path: Path, value: object, says: str, opened: Any, refused: Any) -> None:
    path = written(tmp_path / "t.jsonl", [*ROWS, (4.5, value, "b")])
    error = refused(lambda: opened(x=(f"{path}:x,y", "f32", ("B", 2))))
    assert error.place == line(path, 3) and says in error.message, error.render()


def test_a_value_out_of_range_has_a_line_and_a_column(tmp_path: Path, opened: Any, refused: Any) -> None:
    path = written(tmp_path / "t.csv", [*ROWS, (4.5, "nan", 7)])
    error = refused(lambda: opened(x=(f"{path}:x..y", "f32", ("B", 2))))
    assert error.code == "R103" and error.place == f"data.train.x: {path}:5, column `y`", error.render()
    assert "`data.columns: {y: {missing: median}}` would fill it" in str(error.help)
    path = written(tmp_path / "u.csv", [(1, 2, 0), (1, 2, 7)])
    error = refused(lambda: opened(z=(f"{path}:z", "i32", ("B",), (0, 3))))
    assert error.place == f"data.train.z: {path}:3, column `z`" and "record 1: the value 7" in error.message


def test_of_several_files_the_right_one_is_named(tmp_path: Path, opened: Any, refused: Any) -> None:
    for number, value in enumerate((0.0, 1.0, np.nan)):
        np.save(tmp_path / f"s{number}.npy", np.array([[1, 2], [3, value]], "f4"))
    error = refused(lambda: opened(x=(f"{tmp_path}/s*.npy", "f32", ("B", 2))))
    assert str(tmp_path / "s2.npy") in str(error.place) and "record 1: the value nan" in error.message, error.render()
    for number, value in enumerate(("0", "1", "nan")):
        written(tmp_path / f"s{number}.csv", [(1, 2, 3), (3, value, 4)])
    error = refused(lambda: opened(x=(f"{tmp_path}/s*.csv:x,y", "f32", ("B", 2))))
    assert error.place == f"data.train.x: {tmp_path}/s2.csv:3, column `y`", error.render()


def test_names_of_columns_with_colons_and_commas(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text('at:utc,"price, EUR",z\n1,2,3\n4,5,6\n')
    found = opened(x=(f'{tmp_path}/t.csv:at:utc,"price, EUR"', "f32", ("B", 2)))
    assert found.take(np.arange(2))["x"].tolist() == [[1, 2], [4, 5]]
    ranged = opened(x=(f'{tmp_path}/t.csv:"price, EUR"..z', "f32", ("B", 2)))
    assert ranged.take(np.arange(2))["x"].tolist() == [[2, 3], [5, 6]]
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:price, EUR", "f32", ("B", 2))))
    assert error.code == "R102"


def test_an_integer_of_a_dataset_that_a_float_would_round() -> None:
    source = Source(Path("entry:n"), "a", "entry:n:a")
    wanted = Wanted("data.train.x", (source,), Tensor("x", "f32", ("B",)), (), check_finite=True)
    assert Converter(wanted, source, "a").row({"a": 2**24}) == 2**24
    with pytest.raises(ValueError, match="float32 holds integers exactly up to 16777216"):
        Converter(wanted, source, "a").row({"a": 2**24 + 1})
