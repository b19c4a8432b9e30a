"""``Fitted``: what was fitted on the training rows, as pure data that weights and checkpoints carry as a note.

Evaluation, prediction, serving and a resumed run take these values from the weights and never fit again, so they see
the same numbers as the training, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dslc.base import canonical
from dslc.base.errors import ArtifactError, DataError
from dslc.base.schema import Enum, Int, Json, ListOf, MapOf, Mismatch, Nullable, Record, Text, checker
from dslc.runtime.data.columns import category, date, number  # noqa: F401  (register their kinds)
from dslc.runtime.data.columns.category import MOST, Category
from dslc.runtime.data.columns.encoder import Encoder, Unit, kinds
from dslc.runtime.data.columns.typed import LONGEST_TEXT

#: The name of the note.
NOTE: Final = "dslc.data"
_VERSION: Final = 1
_MOST_COLUMNS: Final = 100_000
_LONGEST: Final = 3 << 20  # characters
_MOST_VALUES: Final = 1_000_000

_INPUT = Text(64, r"[A-Za-z_][A-Za-z0-9_]*", "an input's name")
_FORM = checker(
    Record(
        {
            "version": Int(_VERSION, _VERSION),
            "columns": ListOf(
                Record(
                    {"name": Json(), "kind": Enum(tuple(kinds())), "options": Json(True), "facts": Nullable(Json(True))}
                ),
                most=_MOST_COLUMNS,
            ),
            "inputs": MapOf(_INPUT, ListOf(Json(), most=_MOST_COLUMNS, least=1)),
            "classes": MapOf(_INPUT, ListOf(Json(), most=MOST, least=1)),
        }
    )
)
_OPTIONS = {name: checker(kind.options_schema) for name, kind in kinds().items()}
_FACTS = {name: checker(kind.facts_schema) for name, kind in kinds().items()}


@dataclass(frozen=True)
class Fitted:
    """``columns``: how each column that dslc.yaml describes is encoded, by name. ``inputs``: the columns of each input
    that reads a table. ``classes``: the class names of each input that reads the labels of a folder of images."""

    columns: Mapping[str, Encoder] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def class_names(self, name: str) -> tuple[str, ...] | None:
        """The names of the indices of a label; None if the input is no label of named classes."""
        if name in self.classes:
            return self.classes[name]
        columns = self.inputs.get(name, ())
        column = self.columns.get(columns[0]) if len(columns) == 1 else None
        indexed = isinstance(column, Category) and column.options["categories"] == "index"
        return column.class_names if isinstance(column, Category) and indexed else None

    def units(self, names: Sequence[str]) -> tuple[Unit, ...]:
        """The values in a row of an input that reads these columns; none unless all columns can be decoded."""
        columns = [self.columns.get(name) or number.Number.plain(name) for name in names]
        return tuple(unit for column in columns for unit in column.units) if all(c.units for c in columns) else ()

    def as_data(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "columns": [{"name": name, **column.as_data()} for name, column in sorted(self.columns.items())],
            "inputs": {name: list(columns) for name, columns in self.inputs.items()},
            "classes": {name: list(names) for name, names in self.classes.items()},
        }

    @classmethod
    def of_data(cls, data: Any) -> Fitted:
        """The inverse of ``as_data``. Mismatch or ValueError for other data."""
        _FORM(data)
        columns: dict[str, Encoder] = {}
        for each in data["columns"]:
            name, kind = _text(each["name"]), each["kind"]
            _OPTIONS[kind](each["options"])
            if each["facts"] is not None:
                _FACTS[kind](each["facts"])
            column = kinds()[kind](name, each["options"], each["facts"])
            column.check()
            if columns and name <= next(reversed(columns)):
                raise ValueError("the columns are not in the order of their names")
            columns[name] = column
        named = [
            {name: tuple(map(_text, texts)) for name, texts in data[part].items()} for part in ("inputs", "classes")
        ]
        if any(len(set(texts)) < len(texts) for part in named for texts in part.values()):
            raise ValueError("a name occurs twice")
        return cls(columns, *named)

    def notes(self) -> dict[str, str]:
        """The note that carries this, by its name; none if there is nothing to carry. DataError R104 if it is too
        large."""
        if not (self.columns or self.inputs or self.classes):
            return {}
        text = canonical.dumps(self.as_data()).decode("ascii")
        if len(text) > _LONGEST:
            cause = f"the categories and class names take {len(text)} characters, more than {_LONGEST}"
            raise DataError("R104", cause, place="data.columns", help="set `rare: N` for the columns with most of them")
        return {NOTE: text}

    @classmethod
    def of_notes(cls, notes: Mapping[str, str], place: str) -> Fitted | None:
        """What the notes of weights carry; None if nothing. ArtifactError R306 for a malformed note."""
        text = notes.get(NOTE)
        if text is None:
            return None
        try:
            if len(text) > _LONGEST:
                raise ValueError("it is too long")
            return cls.of_data(canonical.loads(text.encode(), place=place, max_values=_MOST_VALUES))
        except (ArtifactError, Mismatch, ValueError) as error:
            why = error.message if isinstance(error, ArtifactError) else str(error)
            raise ArtifactError(
                "R306",
                f"its note `{NOTE}` is malformed: {why[:200]}",
                place=place,
                help="copy the file again from its origin, or train again",
            ) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        raise ValueError("a name is not a text")
    value.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate
    return value
