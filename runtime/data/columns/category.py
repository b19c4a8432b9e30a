"""A column of categories: one-hot values, or the index of the category, which is also how a label is given."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.schema import Enum, Int, Json, ListOf, Nullable, Record, Schema
from dslc.runtime.data.columns.encoder import GAP_TEXTS, Encoded, Encoder, Fitter, column_of, missing_error, register
from dslc.runtime.data.columns.raw import Raw
from dslc.runtime.data.columns.typed import LONGEST_TEXT, Typed, categories

FORMS: Final = ("onehot", "index")
FILLS: Final = ("error", "mode", "value")
MOST: Final = 100_000  # categories of a column
_WIDEST: Final = 10_000  # categories of a one-hot column


@register
class Category(Encoder):
    """``options``: ``categories`` (one of FORMS), ``unknown`` (error or other), ``rare`` (categories of fewer rows
    count as other), ``missing`` with the text to fill in as ``value``, ``listed`` (the categories in the user's
    order, or null), ``missing_values``. ``facts``: the ``names`` in order, the text that fills a gap as ``fill``.

    The index of a category is its place among ``names``: sorted, unless listed. ``other`` comes after them.
    """

    kind = "category"
    options_schema: ClassVar[Record] = Record(
        {
            "categories": Enum(FORMS),
            "unknown": Enum(("error", "other")),
            "rare": Int(0, 10**9),
            "missing": Enum(FILLS),
            "value": Nullable(Json()),
            "listed": Nullable(ListOf(Json(), most=MOST, least=1)),
        },
        GAP_TEXTS,
    )
    facts_schema: ClassVar[Schema] = Record({"names": ListOf(Json(), most=MOST), "fill": Nullable(Json())})

    @property
    def names(self) -> tuple[str, ...]:
        assert self.facts is not None
        return tuple(self.facts["names"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of every index."""
        return (*self.names, "other") if self.has_other else self.names

    @property
    def has_other(self) -> bool:
        return bool(self.options["unknown"] == "other" or self.options["rare"] > 0)

    def check(self) -> None:
        texts = [self.options["value"], *(self.options["listed"] or ())]
        if self.facts is not None:
            names = self.facts["names"]
            texts += [self.facts["fill"], *names]
            if len(set(map(str, names))) < len(names):
                raise ValueError("a category occurs twice")
            if (self.facts["fill"] is None) != (self.options["missing"] == "error"):
                raise ValueError("the fact `fill` does not fit the option `missing`")
        for text in texts:
            if text is not None and (not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT):
                raise ValueError("a category is not a text")

    def typed(self, raw: Raw) -> Typed:
        typed = categories(self.known(raw))
        return missing_error(self.name, typed, "mode") if self.options["missing"] == "error" else typed

    def fitter(self) -> Fitter:
        return _Fitter(self)

    @property
    def width(self) -> int:
        return len(self.class_names) if self.options["categories"] == "onehot" else 1

    def encode(self, raw: Raw) -> Encoded:
        found = self.encode_integers(raw)
        return Encoded(found.values.astype(np.float64), found.errors, found.late)

    def encode_integers(self, raw: Raw) -> Encoded:
        assert self.facts is not None
        typed = self.typed(raw)
        codes, late = self._codes(typed)
        if self.options["categories"] == "index":
            return Encoded(column_of(codes), typed.errors, late)
        found = np.zeros((len(codes), self.width), np.int64)
        found[np.arange(len(codes)), codes] = 1
        return Encoded(found, typed.errors, late)

    def _codes(self, typed: Typed) -> tuple[NDArray[np.int64], dict[int, str]]:
        assert self.facts is not None
        late, fill = dict[int, str](), self.facts["fill"]
        places = {name: at for at, name in enumerate(self.names)}
        other = len(places) if self.has_other else None
        codes = np.zeros(len(typed.values), np.int64)
        for at, (text, missing) in enumerate(zip(typed.values.tolist(), typed.missing.tolist())):
            if at in typed.errors:
                continue
            name = fill if missing else text
            code = places.get(name, other)
            if code is None:
                late[at] = _unknown(self.name, name, len(places))
            else:
                codes[at] = code
        return codes, late


def _unknown(column: str, name: str, count: int) -> str:
    return (
        f"`{column[:60]}` is {name[:60]!r}, which is none of its {count} categories in the training rows;"
        " `unknown: other` would accept it"
    )


class _Fitter:
    def __init__(self, column: Category) -> None:
        self._column = column
        self._counts: Counter[str] = Counter()

    def add(self, typed: Typed) -> None:
        self._counts.update(typed.values[~typed.missing].tolist())
        if len(self._counts) > MOST:
            self._too_many(MOST)

    def facts(self) -> dict[str, Any]:
        options, name = self._column.options, self._column.name
        fill: str | None = options["value"] if options["missing"] == "value" else None
        if options["missing"] == "mode" and self._counts:
            fill = min(self._counts, key=lambda text: (-self._counts[text], text))
        if options["listed"] is not None:
            names = list(options["listed"])
        else:
            names = sorted(text for text, count in self._counts.items() if count >= options["rare"])
            if options["missing"] == "value" and fill is not None and fill not in names:
                names = sorted([*names, fill])
        if not names or (options["missing"] == "mode" and fill is None):
            raise DataError(
                "R106",
                f"`{name[:60]}` has no category in the training rows",
                place=f"data.columns.{name[:60]}",
                help="remove the column, or lower `rare`",
            )
        if options["categories"] == "onehot" and len(names) > _WIDEST:
            self._too_many(_WIDEST)
        return {"names": names, "fill": fill}

    def _too_many(self, most: int) -> None:
        raise DataError(
            "R104",
            f"`{self._column.name[:60]}` has more than {most} categories",
            place=f"data.columns.{self._column.name[:60]}",
            help="is it a number, or a name of the row? Set `rare: N`, or use `categories: index` with an embedding",
        )
