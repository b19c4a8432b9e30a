"""Predictions of scaled targets are in the units of the data, in every kind of file, and their names say so."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dslc.base.errors import InputError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.data.columns.date import PARTS, Date
from dslc.runtime.data.columns.encoder import Encoder, kinds
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import raw_of
from dslc.runtime.predict.files import FORMATS, check_target, write
from dslc.runtime.predict.layout import layout_of
from dslc.runtime.predict.regression import Errors
from dslc.runtime.predict.rows import Predicted
from dslc.runtime.predict.units import Units, units_of
from dslc.runtime.session.fitted_data import FittedData

SCALES: dict[str, list[str]] = {
    "standard": ["standard"],
    "minmax": ["minmax"],
    "robust": ["robust"],
    "log": ["log"],
    "both": ["log", "standard"],
}


def number(name: str, scale: list[str], shift: float = 10.0, divisor: float = 4.0, *, flag: bool = False) -> Number:
    facts = {"fill": 1.0 if flag else None, "shift": shift, "divisor": divisor}
    missing = {"missing": "mean" if flag else "error", "value": None, "flag": flag}
    return Number(name, {**missing, "scale": scale}, facts)


def face(results: dict[str, tuple[Any, ...]], targets: list[str], dtype: str = "f32") -> Interface:
    tensors = tuple(Tensor(name, dtype, ("B", *rest)) for name, rest in results.items())
    train = Train(tuple(Tensor(name, "f32", ("B",)) for name in targets), {}, 0.1, ())
    return Interface("net", "Net", (Dim("B", 1, 64, 8, True),), (Tensor("x", "f32", ("B", 2)),), tensors, train)


def fitted(inputs: dict[str, tuple[str, ...]], *columns: Encoder) -> Fitted:
    return Fitted({column.name: column for column in columns}, inputs)


def read(path: Path) -> dict[str, Any]:
    """What a file holds, by name, without the numbers of the rows."""
    if path.suffix == ".npy":
        return {"": np.load(path)}
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".parquet":
        table = pq.read_table(path).to_pydict()
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        table = {name: [line[name] for line in lines] for name in lines[0]}
    else:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        table = {name: [float(row[name]) for row in rows] for name in rows[0]}
    return {name: np.asarray(values) for name, values in table.items() if name != "row"}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("result", "rest"), [("price", ()), ("output", (1,)), ("output", ())])
def test_every_file_has_the_units_of_the_data(
    suffix: str, scale: str, result: str, rest: tuple[int, ...], tmp_path: Path
) -> None:
    interface = face({result: rest}, ["target"])
    facts = fitted({"target": ("price",)}, number("price", SCALES[scale]))
    values = np.linspace(-1, 1, 7, dtype=np.float32).reshape(7, *rest)
    units = units_of(interface, facts, single=suffix == ".npy")
    path = tmp_path / f"out{suffix}"
    parts = (Predicted(None, {result: values[start : start + 4]}) for start in (0, 4))
    write(path, units.parts(parts), lambda: layout_of(units.interface, {}), units.interface)
    found = read(path)
    expected = FittedData(interface, facts).decode("target", values).reshape(7)
    assert units.names == ("price",) and units.unclear == ()
    raw = f"{result}.scaled" + (".0" if suffix == ".csv" and rest else "")
    assert list(found) == ([""] if suffix == ".npy" else ["price", raw])
    assert np.array_equal(found["" if suffix == ".npy" else "price"], expected)
    if suffix != ".npy":
        assert np.array_equal(np.asarray(found[raw], np.float32).reshape(values.shape), values)


def date(parts: list[str], *, flag: bool = False) -> Date:
    options = {"date": parts, "format": None, "missing": "2000-01-01", "flag": flag, "scale": ["minmax"]}
    return Date("built", options, {"parts": [[2000.0 + at, 10.0 + at] for at, _ in enumerate(parts)]})


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("parts", [["days"], ["year"], ["year", "month"]])
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_scaled_date_is_decoded(suffix: str, parts: list[str], flag: bool, tmp_path: Path) -> None:
    column = date(parts, flag=flag)
    names = [f"built.{part}" for part in parts] + (["built.missing"] if flag else [])
    interface = face({"output": (len(names),)}, ["target"])
    facts = fitted({"target": ("built",)}, column)
    values = np.linspace(0, 1, 3 * len(names), dtype=np.float32).reshape(3, len(names))
    expected = FittedData(interface, facts).decode("target", values)
    for at, _ in enumerate(parts):
        assert np.array_equal(expected[:, at], values[:, at].astype(np.float64) * (10 + at) + 2000 + at)
    units = units_of(interface, facts, single=suffix == ".npy")
    assert units.names == tuple(names) and not units.unclear
    if suffix == ".npy" and len(names) > 1:
        with pytest.raises(InputError, match="several results"):
            check_target(tmp_path / "out.npy", units.interface)
        return
    path = tmp_path / f"out{suffix}"
    parts_of = iter([Predicted(None, {"output": values})])
    write(path, units.parts(parts_of), lambda: layout_of(units.interface, {}), units.interface)
    found = read(path)
    for at, name in enumerate(names):
        assert np.array_equal(found["" if suffix == ".npy" else name], expected[:, at])


def test_every_kind_of_column_that_is_scaled_can_be_decoded() -> None:
    """What ``encode`` gives, ``decode`` takes back; so no scaled target stays scaled."""
    raw = raw_of(["2003-07-01", "2011-02-05"])
    column = date(list(PARTS))
    encoded = column.encode(raw).values
    for unit, part in zip(column.units, column.parts(column.typed(raw)), strict=True):
        np.testing.assert_allclose(unit.decode(encoded[:, unit.at]), part, rtol=1e-12, atol=1e-9)
    flagged = number("price", ["log"], flag=True)
    encoded = flagged.encode(raw_of([3.0, None])).values
    assert [unit.name for unit in flagged.units] == ["price", "price.missing"]
    np.testing.assert_allclose(flagged.units[0].decode(encoded[:, 0]), [3.0, 1.0])
    assert flagged.units[1].decode(encoded[:, 1]).tolist() == [0.0, 1.0]
    for kind in kinds().values():
        if "scale" in kind.options_schema.fields:
            assert kind.decode is not Encoder.decode and kind.scaled is not Encoder.scaled, kind


def test_a_csv_says_in_its_header_which_is_which(tmp_path: Path) -> None:
    units = units_of(face({"output": ()}, ["target"]), fitted({"target": ("price",)}, number("price", ["standard"])))
    path = tmp_path / "out.csv"
    parts = iter([Predicted(["a"], {"output": np.array([0.5], np.float32)})])
    write(path, units.parts(parts), lambda: layout_of(units.interface, {}), units.interface)
    assert path.read_text() == "row,price,output.scaled\na,12.0,0.5\n"


def test_several_columns_of_a_target_each_have_a_column() -> None:
    columns = number("a", ["standard"], 1.0, 2.0), Number.plain("b")
    interface = face({"output": (2,), "extra": ()}, ["both"])
    units = units_of(interface, fitted({"both": ("a", "b")}, *columns))
    values = np.array([[1, 2], [3, 4]], np.float32)
    found = units.results({"output": values, "extra": np.zeros(2, np.float32)})
    assert list(found) == ["a", "b", "output.scaled", "extra"]
    assert found["a"].tolist() == [3.0, 7.0] and found["b"].tolist() == [2.0, 4.0]
    assert found["a"].dtype == np.float64 and np.array_equal(found["output.scaled"], values)


def owners(units: Units) -> dict[str, list[str]]:
    return {result: [column.name for _, column in pairs] for result, pairs in units.decoded.items()}


def test_a_target_belongs_to_the_result_of_its_name_or_to_the_only_one_of_its_shape() -> None:
    price, area = number("price", ["standard"]), number("area", ["log"])
    one = fitted({"target": ("price",)}, price)
    two = fitted({"price": ("price",), "size": ("area",)}, price, area)
    for units, found, unclear in (
        (units_of(face({"mean": (), "spread": ()}, ["target"]), one), {}, ("target",)),
        (units_of(face({"price": (), "spread": ()}, ["target"]), one), {"price": ["price"]}, ()),
        (units_of(face({"spread": (), "target": ()}, ["target"]), one), {"target": ["price"]}, ()),
        (units_of(face({"output": (), "hidden": (8,)}, ["target"]), one), {"output": ["price"]}, ()),
        (units_of(face({"output": (3,)}, ["target"]), one), {}, ("target",)),
        (units_of(face({"output": ("T",)}, ["target"]), one), {}, ("target",)),
        (units_of(face({"output": ()}, ["target"], "i32"), one), {}, ("target",)),
        (
            units_of(face({"price": (), "other": ()}, ["price", "size"]), two),
            {"price": ["price"], "other": ["area"]},
            (),
        ),
        (units_of(face({"output": ()}, ["price", "size"]), two), {}, ("price", "size")),
        (units_of(face({"output": ()}, ["target"]), fitted({"target": ("price",)}, number("price", []))), {}, ()),
        (units_of(face({"output": ()}, ["target"]), Fitted()), {}, ()),
    ):
        assert (owners(units), units.unclear) == (found, unclear)


def test_names_stay_different() -> None:
    price = number("spread", ["standard"])
    interface = face({"output": (), "spread": (2,)}, ["target"])
    units = units_of(interface, fitted({"target": ("spread",)}, price))
    assert [r.name for r in units.interface.results] == ["spread_", "output.scaled", "spread"]


def test_without_a_scaled_target_nothing_changes() -> None:
    interface = face({"output": ()}, ["target"])
    units = units_of(interface, Fitted())
    part = Predicted(None, {"output": np.zeros(3, np.float32)})
    assert units.interface == interface and next(units.parts(iter([part]))) is part


def test_errors_do_not_depend_on_the_batches() -> None:
    rng = np.random.default_rng(3)
    true = rng.normal(1e6, 3.0, 50)
    found = true + rng.normal(0, 1, 50)
    for size in (1, 7, 50):
        errors = Errors()
        for start in range(0, 50, size):
            errors.add(true[start : start + size], found[start : start + size])
        values = errors.values()
        wrong = found - true
        assert values["mae"] == pytest.approx(np.abs(wrong).mean(), rel=1e-9)
        assert values["rmse"] == pytest.approx(np.sqrt((wrong**2).mean()), rel=1e-9)
        assert values["r2"] == pytest.approx(1 - (wrong**2).sum() / ((true - true.mean()) ** 2).sum(), rel=1e-6)
    constant = Errors()
    constant.add(np.ones(3), np.zeros(3))
    assert constant.values() == {"mae": 1.0, "rmse": 1.0, "r2": None}
