"""Fitted facts: the same text for the same facts, and every other text is refused."""

from __future__ import annotations

import json
import random

import pytest

from dslc.base import canonical
from dslc.base.errors import ArtifactError
from dslc.runtime.data.columns.category import Category
from dslc.runtime.data.columns.date import Date
from dslc.runtime.data.columns.fitted import NOTE, Fitted
from dslc.runtime.data.columns.number import Number

AREA = Number(
    "area",
    {"missing": "median", "value": None, "flag": True, "scale": ["log", "standard"]},
    {"fill": 2.5, "shift": -0.1, "divisor": 1e-3},
)
CITY = Category(
    "city \n\t",
    {"categories": "index", "unknown": "other", "rare": 2, "missing": "value", "value": "?", "listed": None},
    {"names": ["", "São Paulo", "x\ny"][1:], "fill": "?"},
)
BUILT = Date(
    "built",
    {"date": ["year", "days"], "format": "%d.%m.%Y", "missing": "1970-01-01", "flag": False, "scale": ["minmax"]},
    {"parts": [[1999.0, 3.0], [0.0, 1.0]]},
)
FITTED = Fitted(
    {column.name: column for column in (AREA, CITY, BUILT)},
    {"x": ("area", "built", "plain"), "y": ("city \n\t",)},
    {"label": ("cat", "dog")},
)


def test_the_note_gives_the_same_facts_and_the_same_text() -> None:
    notes = FITTED.notes()
    again = Fitted.of_notes(notes, "w")
    assert again == FITTED and again is not None and again.notes() == notes
    assert Fitted().notes() == {} and Fitted.of_notes({}, "w") is None


def test_class_names_are_those_of_folders_and_of_index_columns() -> None:
    assert FITTED.class_names("label") == ("cat", "dog")
    assert FITTED.class_names("y") == ("São Paulo", "x\ny", "other")
    assert FITTED.class_names("x") is None and FITTED.class_names("nothing") is None


def refused(text: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        Fitted.of_notes({NOTE: text}, "w")
    assert caught.value.code == "R306" and caught.value.help and len(caught.value.render()) < 800


CHANGES = {
    "another version": ("version", 2),
    "an unknown kind": ("columns.0.kind", "code"),
    "an unknown option": ("columns.0.options.x", 1),
    "facts that are missing": ("columns.0.facts.fill", None),
    "a divisor of zero": ("columns.0.facts.divisor", 0.0),
    "an integer for a float": ("columns.0.facts.shift", 1),
    "a name that is no text": ("columns.0.name", 5),
    "a lone surrogate": ("columns.0.name", "\ud800"),
    "a name twice": ("columns.0.name", "built"),
    "parts without facts": ("columns.1.facts.parts", [[0.0, 1.0]]),
    "a category twice": ("columns.2.facts.names", ["a", "a"]),
    "a category that is no text": ("columns.2.facts.names", [1]),
    "an input without columns": ("inputs.x", []),
    "a class twice": ("classes.label", ["a", "a"]),
    "an unknown field": ("more", 1),
}


@pytest.mark.parametrize("case", CHANGES)
def test_other_data_is_refused(case: str) -> None:
    path, value = CHANGES[case]
    data = json.loads(canonical.dumps(FITTED.as_data()))
    assert [each["name"] for each in data["columns"]] == ["area", "built", "city \n\t"]
    *steps, last = path.split(".")
    inner = data
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    inner[last] = value
    refused(json.dumps(data, sort_keys=True, separators=(",", ":")))


TEXTS = ["", "{}", "[]", "1" * 5000, "[" * 100_000, '{"a":' * 5000, "x" * (4 << 20), "é", "null"]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_other_text_is_refused(text: str) -> None:
    refused(text)


def test_changed_text_is_refused_or_gives_facts_that_write_it_again(fuzz_seed: int) -> None:
    draw = random.Random(fuzz_seed)
    [text] = FITTED.notes().values()
    for _ in range(2000):
        at, more = (
            draw.randrange(len(text)),
            draw.choice(['"', "[", "]", "}", ",", "0", "-", "1e9", "null", "", "\\ud800"]),
        )
        changed = text[:at] + more + text[at + draw.randrange(3) :]
        try:
            found = Fitted.of_notes({NOTE: changed}, "w")
        except ArtifactError as error:
            assert error.code == "R306"
        else:
            assert found is not None and found.notes() == {NOTE: changed}
