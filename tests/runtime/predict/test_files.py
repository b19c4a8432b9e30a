"""The files that take predictions: each gives the values back, and an error leaves the earlier file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dslc.base.errors import InputError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.predict.files import FORMATS, TABLES, write
from dslc.runtime.predict.layout import Layout, layout_of
from dslc.runtime.predict.rows import Predicted

RNG = np.random.default_rng(5)
ODD = np.array([0.0, -0.0, 0.1, 1 / 3, 1e-45, 3.4e38, np.nan, np.inf, -np.inf], np.float64)
VALUES: dict[str, np.ndarray] = {
    "f32": np.concatenate([ODD, RNG.standard_normal(9)]).astype(np.float32).reshape(6, 3),
    "f64": np.concatenate([ODD, RNG.standard_normal(9) * 1e200]).reshape(6, 3),
    "f16": RNG.standard_normal((6, 3)).astype(np.float16),
    "i64": RNG.integers(-(2**62), 2**62, (6, 3)),
    "u8": RNG.integers(0, 256, (6, 3)).astype(np.uint8),
    "b1": RNG.integers(0, 2, (6, 3)).astype(bool),
}


def interface(*results: Tensor, label: Tensor | None = None) -> Interface:
    train = None if label is None else Train((label,), {}, 0.1, ())
    return Interface("net", "Net", (Dim("B", 1, 64, 8, True),), (Tensor("x", "f32", ("B", 2)),), results, train)


def batches(arrays: dict[str, np.ndarray], names: list[str] | None = None, size: int = 4) -> Iterator[Predicted]:
    for start in range(0, len(next(iter(arrays.values()))), size):
        part = slice(start, start + size)
        yield Predicted(None if names is None else names[part], {k: v[part] for k, v in arrays.items()})


def columns(path: Path) -> dict[str, list[Any]]:
    """A table's columns by name, as Python values; the texts of a CSV file."""
    if path.suffix == ".parquet":
        return {name: values for name, values in pq.read_table(path).to_pydict().items()}
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return {name: [line[name] for line in lines] for name in lines[0]}
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_gives_the_values_back(suffix: str, dtype: str, tmp_path: Path) -> None:
    values = VALUES[dtype]
    face = interface(Tensor("y", dtype, ("B", 3)))
    path = tmp_path / f"out{suffix}"
    assert write(path, batches({"y": values}), lambda: layout_of(face, {}), face) == {"y": [6, 3]}
    if suffix in TABLES:
        found = columns(path)
        assert [int(x) for x in found["row"]] == list(range(6))
        read: Any = found["y"] if suffix != ".csv" else list(zip(*(found[f"y.{i}"] for i in range(3))))
        if suffix == ".csv" and dtype == "b1":
            read = [[text == "True" for text in row] for row in read]
        again = np.array([[np.nan if x is None else x for x in row] for row in read]).astype(values.dtype)
    else:
        again = np.load(path) if suffix == ".npy" else np.load(path)["y"]
    expected = np.where(np.isfinite(values), values, np.nan) if suffix == ".jsonl" and dtype[0] == "f" else values
    assert again.dtype == values.dtype
    assert np.array_equal(again, expected, equal_nan=dtype[0] == "f")
    assert np.array_equal(np.signbit(again), np.signbit(expected)) or dtype[0] != "f" or suffix == ".jsonl"


@pytest.mark.parametrize("suffix", TABLES)
def test_rows_and_classes_have_their_names(suffix: str, tmp_path: Path) -> None:
    values = np.array([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0], [0.0, 0.0, 1.0]], np.float32)
    names = ["a,b.png", 'c"d.png', "ü.png"]
    label = Tensor("label", "i32", ("B",), (0, 3))
    face = interface(Tensor("y", "f32", ("B", 3)), label=label)
    for known, classes in (({"label": ("cat", "dog", "fox")}, ["dog", "cat", "fox"]), ({}, [1, 0, 2])):
        path = tmp_path / f"out{suffix}"
        write(path, batches({"y": values}, names, 2), lambda known=known: layout_of(face, known), face)  # type: ignore[misc]
        found = columns(path)
        assert found["row"] == names
        assert found["class"] == (list(map(str, classes)) if suffix == ".csv" else classes)
        assert list(found)[:2] == ["row", "class"]
        if suffix == ".csv":
            assert list(found)[2:] == [f"y.{each}" for each in known.get("label", range(3))]


def test_an_npz_has_the_names_too(tmp_path: Path) -> None:
    label = Tensor("label", "i32", ("B",), (0, 2))
    face = interface(Tensor("row", "f32", ("B", 2)), Tensor("n", "i64", ("B",)), label=label)
    values = {"row": np.array([[0, 1], [1, 0]], np.float32), "n": np.array([5, 6])}
    path = tmp_path / "out.npz"
    write(path, batches(values, ["a", "b"], 1), lambda: layout_of(face, {"label": ("no", "yes")}), face)
    found = np.load(path)
    assert sorted(found) == ["class", "n", "row", "row_"]
    assert found["class"].tolist() == ["yes", "no"] and found["row_"].tolist() == ["a", "b"]
    assert np.array_equal(found["row"], values["row"]) and np.array_equal(found["n"], values["n"])


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", ["file", "args", "kwds", "allow_pickle", "self", "row", "class", "compression"])
def test_a_result_may_have_any_name(name: str, suffix: str, tmp_path: Path) -> None:
    """Also one that a function which writes files takes as an argument."""
    values = np.arange(6, dtype=np.float32)
    face = interface(Tensor(name, "f32", ("B",)))
    written = []
    for again in range(2):
        path = tmp_path / f"out{again}{suffix}"
        write(path, batches({name: values}, [*"abcdef"]), lambda: layout_of(face, {}), face)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    if suffix in TABLES:
        assert [float(x) for x in columns(path)[name]] == values.tolist()
    else:
        found = np.load(path)
        assert np.array_equal(found if suffix == ".npy" else found[name], values)
        if suffix == ".npz":
            assert [each for each in found if each != name] == ["row_" if name == "row" else "row"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_error_leaves_the_earlier_file(suffix: str, tmp_path: Path) -> None:
    face = interface(Tensor("y", "f32", ("B",)))
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"before")

    def failing() -> Iterator[Predicted]:
        yield Predicted(None, {"y": np.zeros(4, np.float32)})
        raise InputError("R105", "planted", place="here", help="none")

    with pytest.raises(InputError, match="planted"):
        write(path, failing(), lambda: layout_of(face, {}), face)
    assert path.read_bytes() == b"before" and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    images = interface(Tensor("y", "f32", ("B", 2, 2)))
    values = {"y": np.zeros((4, 2, 2), np.float32)}
    with pytest.raises(InputError, match="no row of a table"):
        write(tmp_path / "out.csv", batches(values), lambda: layout_of(images, {}), images)
    for suffix in (".jsonl", ".parquet"):
        write(tmp_path / f"out{suffix}", batches(values), lambda: layout_of(images, {}), images)
        assert columns(tmp_path / f"out{suffix}")["y"] == values["y"].tolist()
    whole = interface(Tensor("y", "f32", (2,)))
    with pytest.raises(InputError, match="no result has rows"):
        write(tmp_path / "out.csv", iter([Predicted(None, {"y": np.zeros(2)})]), lambda: layout_of(whole, {}), whole)


def test_a_label_decides_only_about_one_result_of_its_classes() -> None:
    label = Tensor("label", "i32", ("B",), (0, 3))
    one = layout_of(interface(Tensor("y", "f32", ("B", 3)), Tensor("z", "f32", ("B", 4)), label=label), {})
    two = layout_of(interface(Tensor("y", "f32", ("B", 3)), Tensor("z", "f32", ("B", 3)), label=label), {})
    assert isinstance(one, Layout) and dict(one.classes) == {"y": ("class", None)}
    assert dict(two.classes) == {"y": ("y.class", None), "z": ("z.class", None)}
    assert not layout_of(interface(Tensor("y", "f32", ("B", 4)), label=label), {}).classes
