"""``Session.data``: raw values become the inputs of the training, and results names and values again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.texts import row_of, write_tokenizer

from dslc.base.errors import DataError, InputError
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.data.columns.category import Category
from dslc.runtime.data.columns.date import Date
from dslc.runtime.data.columns.encoder import Encoder
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import raw_of
from dslc.runtime.session.fitted_data import FittedData
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


def test_a_table_with_targets_is_predicted_without_them(session: Session) -> None:
    table = {**TABLE, "city": ["Bonn", 3.0]}
    with pytest.raises(InputError, match="`target` is not an input of `predict`") as caught:
        session.predict(**session.data.encode(table))
    assert caught.value.help and "encode(table, targets=False)" in caught.value.help
    inputs = session.data.encode(table, targets=False)
    assert inputs.keys() == {"x"} and inputs["x"].tolist() == session.data.encode(TABLE)["x"].tolist()
    assert len(session.predict(**inputs)[0]) == 2


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
        ({"built": ["2001-01-01", "soon"]}, "row 1: `built`: 'soon' is not an ISO date"),
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


def test_a_column_is_decoded_by_its_own_name_too(session: Session) -> None:
    session.weights.notes = Fitted(COLUMNS, {"x": ("area", "built", "plain"), "target": ("city",)}).notes()
    assert session.data.class_names("city") == session.data.class_names("target") == ("3", "Bonn", "true")
    assert session.data.decode("city", np.array([1, 2])).tolist() == ["Bonn", "true"]
    areas = np.array([0.5, 7.0])
    np.testing.assert_allclose(session.data.decode("area", AREA.encode(raw_of(areas)).values[:, 0]), areas, 1e-13)
    assert session.data.decode("built", [0.5]).tolist() == [2005.0]
    assert session.data.decode("plain", np.float32([0.5])).tolist() == [0.5]
    with pytest.raises(InputError) as caught:
        session.data.decode("id", [1])
    assert "target, x, area, built, city" in str(caught.value.help)
    with pytest.raises(InputError) as caught:
        session.data.class_names("area")
    assert "they name those of target, city" in str(caught.value.help)
    # an input's name comes before a column's
    session.weights.notes = Fitted(COLUMNS, {"x": ("city",), "city": ("area",)}).notes()
    assert session.data.decode("city", [0.0]).dtype == np.float64


TEXTS = ["It was a dark night", "the rain", None, "", "torrents " * 40]


def of_texts(notes: dict[str, str], built: int = 12) -> FittedData:
    """What the training on a column ``review`` has left, for a model with a free number of tokens."""
    face = Interface(
        "m",
        "M",
        (Dim("B", 1, 64, 4, True), Dim("T", 1, 64, 8, False)),
        (
            Tensor("ids", "i32", ("B", "T"), (0, 400)),
            Tensor("mask", "f32", ("B", "T")),
            Tensor("raw", "u8", ("B", 2), (0, 256)),
            Tensor("area", "f32", ("B",)),
        ),
        (),
        Train((Tensor("there", "b1", ("B", "T")),), {}, 0.1, ()),
    )
    inputs = {"ids": ("tokens(review)",), "mask": ("tokens.mask(review)",), "raw": ("bytes(review)",)}
    fitted = Fitted(COLUMNS, {**inputs, "area": ("area",), "there": ("bytes.mask(other)",)})
    return FittedData(face, fitted, {**fitted.notes(), **notes}, {"B": 4, "T": built})


def test_texts_become_the_tokens_of_the_training(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from dslc.runtime.data.text.tokenize import Tokenizer

    file = write_tokenizer(tmp_path / "tokenizer.json")
    data = of_texts(Tokenizer(file).note)
    assert data.columns["ids"] == data.columns["raw"] == ("review",)
    table = {"review": TEXTS, "area": np.zeros(5)}
    found = data.encode(table, tokenizer=file)
    assert list(found) == ["ids", "mask", "raw", "area"]
    expected = [row_of(file, text or "", 12) for text in TEXTS]
    assert found["ids"].dtype == np.int32 and found["ids"].tolist() == expected
    assert found["mask"].dtype == np.float32
    assert found["mask"].tolist() == [[float(id != 2) for id in row] for row in expected]
    assert found["raw"].dtype == np.uint8 and found["raw"].tolist() == [
        list((text or "").encode()[:2].ljust(2, b"\0")) for text in TEXTS
    ]
    array = data.encode({**table, "review": np.array([text or "" for text in TEXTS])}, tokenizer=str(file))
    assert all(np.array_equal(array[name], found[name]) for name in found)
    there = data.encode({**table, "other": ["a"] * 5}, tokenizer=file)["there"]
    assert there.dtype == np.bool_ and there.sum(1).tolist() == [1] * 5
    with pytest.raises(InputError, match="neither a label nor columns"):
        data.decode("ids", found["ids"])


@pytest.mark.parametrize(
    ("reviews", "given", "says"),
    [
        (None, True, "there is no column `review`"),
        (["a", 5], True, "row 1: '5' is not a text"),
        (["a"], True, "differ in length"),
        (["a", "b"], False, "need the tokenizer of the training"),
    ],
)
def test_a_text_that_cannot_be_encoded_is_refused(tmp_path: Path, reviews: Any, given: bool, says: str) -> None:
    pytest.importorskip("tokenizers")
    file = write_tokenizer(tmp_path / "tokenizer.json")
    table = {"area": np.zeros(2)} | ({} if reviews is None else {"review": reviews})
    with pytest.raises(InputError) as caught:
        of_texts({}).encode(table, tokenizer=file if given else None)
    assert caught.value.code == "R105" and says in caught.value.message and caught.value.help


def test_another_tokenizer_than_that_of_the_training_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from dslc.runtime.data.text.tokenize import Tokenizer

    file = write_tokenizer(tmp_path / "tokenizer.json")
    other = write_tokenizer(tmp_path / "other.json", vocabulary=300)
    table = {"review": ["a"], "area": [1.0]}
    with pytest.raises(DataError, match="another tokenizer"):
        of_texts(Tokenizer(file).note).encode(table, tokenizer=other)
    with pytest.raises(DataError, match="R101"):
        of_texts({}).encode(table, tokenizer=tmp_path / "none.json")
