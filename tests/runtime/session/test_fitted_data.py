"""``Session.data``: raw values become the inputs of the training, and results names and values again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import InputError
from dslc.runtime.data.columns.category import Category
from dslc.runtime.data.columns.date import Date
from dslc.runtime.data.columns.encoder import Encoder
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import raw_of
from dslc.runtime.session.session import Session

Open = Callable[..., Session]
AREA = Number(
    "area",
    {"missing": "median", "value": None, "flag": False, "scale": ["log"]},
    {"fill": np.e - 1, "shift": 0.0, "divisor": 0.5},
)
CITY = Category(
    "city",
    {"categories": "index", "unknown": "error", "rare": 0, "missing": "error", "value": None, "listed": None},
    {"names": ["3", "Bonn", "true"], "fill": None},
)
BUILT = Date(
    "built",
    {"date": ["year"], "format": None, "missing": None, "flag": False, "scale": ["minmax"]},
    {"parts": [[2000.0, 10.0]]},
)
COLUMNS: dict[str, Encoder] = {column.name: column for column in (AREA, CITY, BUILT)}


@pytest.fixture
def session(open_line: Open) -> Session:
    """The inputs of the line model, x f32[B, 3] and target i32[B], as if they were trained on a table."""
    opened = open_line(seed=1)
    opened.weights.notes = Fitted(COLUMNS, {"x": ("area", "built", "plain"), "target": ("city",)}).notes()
    return opened


TABLE: dict[str, Any] = {"area": [0.0, None], "built": ["2010-05-01", date(2005, 1, 1)], "plain": [1, 2.5]}


def test_columns_become_the_inputs_of_the_training(session: Session) -> None:
    assert session.data.columns == {"x": ("area", "built", "plain"), "target": ("city",)}
    found = session.data.encode({**TABLE, "city": ["Bonn", 3.0], "id": ["a", "b"]})
    assert found["x"].dtype == np.float32 and found["target"].dtype == np.int32
    assert found["x"].tolist() == [[0.0, 1.0, 1.0], [2.0, 0.5, 2.5]] and found["target"].tolist() == [1, 0]
    assert session.data.encode(TABLE).keys() == {"x"}  # a label is encoded if it is there
    assert len(session.predict(**session.data.encode(TABLE))[0]) == 2


class Frame:
    """As much of a pandas DataFrame as is used: the names of its columns, and a column by its name."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


class NAType:
    """Stands for pandas.NA, which refuses comparisons."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    "change",
    [
        {"area": np.array([0.0, np.nan])},
        {"area": np.array([0, NAType()], object)},
        {"area": ("0", "NA")},
        {"area": [False, ""]},
        {"built": np.array(["2010-05-01", "2005-01-01"], "M8[ns]")},
        {"plain": np.array([1, 2.5], "f4")},
        {"plain": np.array(["1", "2.5"])},
    ],
)
def test_lists_arrays_and_frames_of_any_dtype_give_the_same_bits(session: Session, change: dict[str, Any]) -> None:
    expected = session.data.encode(TABLE)["x"].tobytes()
    assert session.data.encode(Frame({**TABLE, **change}))["x"].tobytes() == expected


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"area": None}, "no column `area`"),
        ({"area": [1.0]}, "differ in length"),
        ({"area": [[1.0], [2.0]]}, "row 0"),
        ({"area": np.zeros((2, 2))}, "shape"),
        ({"area": [-1.5, 2]}, "no logarithm"),
        ({"area": ["x", 2]}, "row 0: 'x' is not a number"),
        ({"built": [None, "2001-01-01"]}, "row 0: `built` is missing"),
        ({"built": ["2001-01-01", "soon"]}, "row 1: 'soon' is not an ISO date"),
        ({"plain": [1, None]}, "row 1: `plain` is missing"),
        ({"plain": [1, 1e300]}, "too large for float32"),
        ({"city": ["Bonn", "Ulm"]}, "row 1: `city` is 'Ulm', which is none of its 3 categories"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_row_and_column(
    session: Session, change: dict[str, Any], says: str
) -> None:
    table = {name: column for name, column in {**TABLE, **change}.items() if column is not None}
    with pytest.raises(InputError) as caught:
        session.data.encode(table)
    assert caught.value.code == "R105" and says in caught.value.message and caught.value.help


def test_decode_is_the_inverse(session: Session) -> None:
    session.weights.notes = Fitted(COLUMNS, {"x": ("area",), "target": ("city",)}, {"label": ("cat", "dog")}).notes()
    assert session.data.decode("label", np.array([[1, 0]])).tolist() == [["dog", "cat"]]
    assert session.data.decode("target", [2]).tolist() == ["true"]
    assert session.data.class_names("target") == ("3", "Bonn", "true")
    areas = np.array([0.5, 7.0, 1e6])
    encoded = AREA.encode(raw_of(areas)).values[:, 0]
    np.testing.assert_allclose(session.data.decode("x", encoded), areas, 1e-13)
    for name, values in (("label", [2]), ("label", [-1]), ("label", [0.5]), ("none", [1])):
        with pytest.raises(InputError, match="R105"):
            session.data.decode(name, values)
    with pytest.raises(InputError, match="R105"):
        session.data.class_names("x")


def test_weights_without_columns_say_so(open_line: Open) -> None:
    with pytest.raises(InputError, match="know no columns"):
        open_line(seed=1).data.encode(TABLE)
