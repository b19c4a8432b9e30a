"""What a column becomes: one class per kind (numbers, categories, dates), with the user's options and fitted facts.

An encoder is pure data. ``options`` are what dslc.yaml says, ``facts`` what was fitted on the training rows, None
before. The same encoder then serves training, evaluation, prediction and worker processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslc.base.schema import ListOf, Record, Schema, Text
from dslc.base.words import yaml_key
from dslc.runtime.data.columns.raw import Raw
from dslc.runtime.data.columns.typed import LONGEST_TEXT, NUMBER_FORM, Typed, is_date, without

#: The option of each kind that names what stands for a gap. It is absent if nothing does, as in older weights.
MISSING_VALUES: Final = "missing_values"
GAP_TEXTS: Final[Mapping[str, Schema]] = {MISSING_VALUES: ListOf(Text(LONGEST_TEXT), most=100, least=1)}


class Fitter(Protocol):
    """Collects facts of one column from blocks of training rows, in the order of the rows."""

    def add(self, typed: Typed) -> None:
        """Add a block of ``sums.BLOCK`` rows, the last one shorter, without rows that have errors."""
        ...

    def facts(self) -> dict[str, Any]:
        """The facts. Raises DataError R103 or R104 if the rows do not determine them."""
        ...


@dataclass(frozen=True)
class Encoded:
    """``values``: f64 or i64 [n, width]; ``errors``: why the value at a position has no meaning, as in ``typed``;
    ``late``: why it does not fit what was fitted."""

    values: NDArray[Any]
    errors: dict[int, str]
    late: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoder(ABC):
    """A column's name, options and facts, as JSON data."""

    name: str
    options: Mapping[str, Any]
    facts: Mapping[str, Any] | None = None

    kind: ClassVar[str]
    options_schema: ClassVar[Record]
    facts_schema: ClassVar[Schema]

    @abstractmethod
    def typed(self, raw: Raw) -> Typed:
        """The column's values in their kind. A missing value without a rule is an error. Needs no facts."""

    def known(self, raw: Raw) -> Raw:
        """The raw values with the gaps that ``missing_values`` names."""
        return without(raw, self.options.get(MISSING_VALUES, ()))

    @abstractmethod
    def fitter(self) -> Fitter: ...

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of values in a row of the input; needs facts."""

    @abstractmethod
    def encode(self, raw: Raw) -> Encoded:
        """The values, f64[n, width]; needs facts."""

    def rounded(self, raw: Raw, values: NDArray[Any], dtype: np.dtype[Any]) -> dict[int, str]:
        """Why integers of the column would not stay what they are as ``values`` in a float dtype, by position."""
        return {}

    def encode_integers(self, raw: Raw) -> Encoded:
        """The values, i64[n, width]. Raises TypeError with the reason if they are not integers."""
        raise TypeError("it gives fractions")

    @property
    def scaled(self) -> bool:
        """True if the values are not in the units of the data."""
        return False

    @property
    def units(self) -> tuple[Unit, ...]:
        """The values of a row, if each can be decoded to a number in the units of the data; else none."""
        return ()

    def decode(self, values: NDArray[np.float64], at: int = 0) -> NDArray[np.float64]:
        """The inverse of the scaling for value ``at`` of a row, element by element; needs facts and ``units``."""
        raise TypeError("its values are not numbers of the data")

    @abstractmethod
    def check(self) -> None:
        """Raises ValueError if the facts do not fit the options or each other; their schema has been checked."""

    def fitted(self, facts: Mapping[str, Any]) -> Self:
        return replace(self, facts=facts)

    def as_data(self) -> dict[str, Any]:
        facts = None if self.facts is None else dict(self.facts)
        return {"kind": self.kind, "options": dict(self.options), "facts": facts}


@dataclass(frozen=True)
class Unit:
    """A value of a row of a column that can be decoded. ``at``: its place in the row."""

    name: str
    column: Encoder
    at: int

    def decode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values in the units of the data, in the same shape."""
        return self.column.decode(values, self.at)


def missing_error(name: str, typed: Typed, example: str) -> Typed:
    """The values with an error for each that is missing."""
    gaps = np.flatnonzero(typed.missing).tolist()
    return Typed(typed.values, typed.missing, {**dict.fromkeys(gaps, missing_why(name, example)), **typed.errors})


def missing_why(name: str, example: str) -> str:
    return f"`{name[:60]}` is missing; `data.columns: {{{yaml_key(name[:60])}: {{missing: {example}}}}}` would fill it"


def undescribed_error(name: str, typed: Typed, categories: str) -> Typed:
    """The values with a hint for each text or date in a column that dslc.yaml does not describe. ``categories``: how
    they would be encoded."""
    errors = {
        row: undescribed_why(name, why, categories) if "is not a" in why else why for row, why in typed.errors.items()
    }
    return Typed(typed.values, typed.missing, errors)


def gap_error(name: str, typed: Typed) -> Typed:
    """The values with a hint for each text in a described column of numbers."""
    hint = f"; if it stands for a gap: `data.columns: {{{yaml_key(name[:60])}: {{missing_values: [...]}}}}`"
    errors = {
        row: why + hint if why.endswith("is not a number") and not is_date(why) else why
        for row, why in typed.errors.items()
    }
    return Typed(typed.values, typed.missing, errors)


def undescribed_why(name: str, why: str, categories: str) -> str:
    if why.endswith(NUMBER_FORM):
        return why
    options, found = ("date: [year]", "dates") if is_date(why) else (f"categories: {categories}", "categories")
    return f"{why}; `data.columns: {{{yaml_key(name[:60])}: {{{options}}}}}` would read {found}"


_KINDS: Final[dict[str, type[Encoder]]] = {}
E = TypeVar("E", bound=Encoder)


def register(kind: type[E]) -> type[E]:
    """Adds a kind of encoder to the table; returns it."""
    _KINDS[kind.kind] = kind
    return kind


def kinds() -> Mapping[str, type[Encoder]]:
    """The registered kinds by name."""
    return _KINDS


def column_of(values: NDArray[Any]) -> NDArray[Any]:
    """[n] as [n, 1]."""
    return values.reshape(-1, 1)
