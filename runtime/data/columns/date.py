"""A column of dates: year, month and so on as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.schema import Bool, Enum, Float, ListOf, Nullable, Record, Row, Schema, Text
from dslc.runtime.data.columns.encoder import GAP_TEXTS, Encoded, Encoder, Fitter, Unit, missing_error, register
from dslc.runtime.data.columns.raw import Raw, raw_objects
from dslc.runtime.data.columns.scale import SCALES, ScaleFitter
from dslc.runtime.data.columns.typed import Typed, moments


def _since(start: str, unit: str) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """The number of whole units since the start of the larger unit."""

    def part(dates: NDArray[Any]) -> NDArray[Any]:
        units = dates.astype(f"M8[{unit}]") - dates.astype(f"M8[{start}]").astype(f"M8[{unit}]")
        return np.asarray(units.astype(np.int64))

    return part


#: The parts by name: f64 of M8[us]. Months, days and days of the year count from 1, weekdays from Monday = 0;
#: ``days`` are those since 1970-01-01, with fractions.
PARTS: Final[dict[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "year": lambda dates: dates.astype("M8[Y]").astype(np.int64) + 1970,
    "month": lambda dates: _since("Y", "M")(dates) + 1,
    "day": lambda dates: _since("M", "D")(dates) + 1,
    "weekday": lambda dates: (dates.astype("M8[D]").astype(np.int64) + 3) % 7,
    "yearday": lambda dates: _since("Y", "D")(dates) + 1,
    "hour": _since("D", "h"),
    "minute": _since("h", "m"),
    "second": _since("m", "s"),
    "days": lambda dates: dates.astype(np.int64) / 86_400_000_000,
}


@register
class Date(Encoder):
    """``options``: ``date`` (parts), ``format`` (of strptime, null: ISO), ``missing`` (null: an error; else the date to
    fill in, ISO), ``missing_values``, ``flag``, ``scale`` (steps, for every part). ``facts``: shift and divisor of each
    part."""

    kind = "date"
    options_schema: ClassVar[Record] = Record(
        {
            "date": ListOf(Enum(tuple(PARTS)), most=len(PARTS), least=1),
            "format": Nullable(Text(100)),
            "missing": Nullable(Text(40)),
            "flag": Bool(),
            "scale": ListOf(Enum(SCALES), most=1),
        },
        GAP_TEXTS,
    )
    facts_schema: ClassVar[Schema] = Record(
        {"parts": ListOf(Row({"shift": Float(), "divisor": Float()}), most=len(PARTS), least=1)}
    )

    def check(self) -> None:
        if self.options["missing"] is not None and moments(raw_objects([self.options["missing"]]), None).errors:
            raise ValueError("the date to fill in is not an ISO date")
        if self.facts is not None:
            if len(self.facts["parts"]) != len(self.options["date"]):
                raise ValueError("the facts are not those of the parts")
            if any(divisor <= 0.0 for _, divisor in self.facts["parts"]):
                raise ValueError("a divisor is not positive")

    def typed(self, raw: Raw) -> Typed:
        typed = moments(self.known(raw), self.options["format"])
        return missing_error(self.name, typed, "1970-01-01") if self.options["missing"] is None else typed

    def fitter(self) -> Fitter:
        return _Fitter(self)

    @property
    def width(self) -> int:
        return len(self.options["date"]) + int(self.options["flag"])

    def encode(self, raw: Raw) -> Encoded:
        assert self.facts is not None
        typed = self.typed(raw)
        parts = self.parts(typed)
        columns = [(part - shift) / divisor for part, (shift, divisor) in zip(parts, self.facts["parts"])]
        if self.options["flag"]:
            columns.append(typed.missing.astype(np.float64))
        return Encoded(np.stack(columns, 1), typed.errors)

    def encode_integers(self, raw: Raw) -> Encoded:
        if self.options["scale"] or "days" in self.options["date"]:
            raise TypeError("its parts are scaled, or days with fractions")
        found = self.encode(raw)
        return Encoded(found.values.astype(np.int64), found.errors)

    @property
    def scaled(self) -> bool:
        return bool(self.options["scale"])

    @property
    def units(self) -> tuple[Unit, ...]:
        """Each part, as ``NAME.PART``, and ``NAME.missing`` for the flag."""
        names = [*self.options["date"], *(["missing"] if self.options["flag"] else [])]
        return tuple(Unit(f"{self.name}.{name}", self, at) for at, name in enumerate(names))

    def decode(self, values: NDArray[np.float64], at: int = 0) -> NDArray[np.float64]:
        assert self.facts is not None
        if at == len(self.facts["parts"]):  # the flag
            return values
        shift, divisor = self.facts["parts"][at]
        found: NDArray[np.float64] = values * divisor + shift
        return found

    def parts(self, typed: Typed) -> list[NDArray[np.float64]]:
        """Each part of the filled dates, f64[n]."""
        dates = typed.values
        if self.options["missing"] is not None:
            fill = moments(raw_objects([self.options["missing"]]), None).values[0]
            dates = np.where(typed.missing, fill, dates)
        dates = np.where(np.isnat(dates), np.datetime64(0, "us"), dates)
        return [PARTS[name](dates).astype(np.float64) for name in self.options["date"]]


class _Fitter:
    def __init__(self, column: Date) -> None:
        self._column = column
        self._scales = [ScaleFitter(column.name, tuple(column.options["scale"])) for _ in column.options["date"]]

    def add(self, typed: Typed) -> None:
        for scale, values in zip(self._scales, self._column.parts(typed)):
            scale.add(values)

    def facts(self) -> dict[str, Any]:
        return {"parts": [list(scale.facts()) for scale in self._scales]}
