"""A column of numbers: gaps filled and flagged, scaled."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.schema import Bool, Enum, Float, ListOf, Nullable, Record, Schema
from dslc.runtime.data.columns.encoder import (
    GAP_TEXTS,
    Encoded,
    Encoder,
    Fitter,
    Unit,
    column_of,
    gap_error,
    missing_error,
    register,
    undescribed_error,
)
from dslc.runtime.data.columns.raw import Raw
from dslc.runtime.data.columns.scale import LOG, STEPS, ScaleFitter, logarithm, logarithm_errors, refuse_infinite
from dslc.runtime.data.columns.sums import Counts, Moments
from dslc.runtime.data.columns.typed import Typed, integers, numbers, rounded_why, written_integer
from dslc.runtime.data.fit import exact_integers

FILLS: Final = ("error", "mean", "median", "value")
_PLAIN: Final[dict[str, Any]] = {"missing": "error", "value": None, "flag": False, "scale": []}


@register
class Number(Encoder):
    """``options``: ``missing`` (one of FILLS) with the ``value`` to fill in, ``flag`` (a second value, 1 if the number
    is missing), ``scale`` (steps), ``missing_values``. ``facts``: ``fill``, ``shift``, ``divisor``.

    A value x becomes (x - shift) / divisor after the gap was filled and ``log`` applied.
    """

    kind = "number"
    options_schema: ClassVar[Record] = Record(
        {"missing": Enum(FILLS), "value": Nullable(Float()), "flag": Bool(), "scale": ListOf(Enum(STEPS), most=2)},
        GAP_TEXTS,
    )
    facts_schema: ClassVar[Schema] = Record({"fill": Nullable(Float()), "shift": Float(), "divisor": Float()})

    @classmethod
    def plain(cls, name: str) -> Number:
        """A column that dslc.yaml does not describe: its numbers as they are; NaN is a number, a gap is an error."""
        return cls(name, _PLAIN, {"fill": None, "shift": 0.0, "divisor": 1.0})

    @property
    def is_plain(self) -> bool:
        return self.options == _PLAIN

    def check(self) -> None:
        if (self.options["missing"] == "value") != (self.options["value"] is not None):
            raise ValueError("the option `value` belongs to `missing: value`")
        low = -1.0 if LOG in self.options["scale"] else -np.inf
        if self.options["value"] is not None and self.options["value"] <= low:
            raise ValueError("the number to fill in has no logarithm ln(1 + x)")
        if self.facts is not None:
            if self.facts["fill"] is not None and self.facts["fill"] <= low:
                raise ValueError("the fact `fill` has no logarithm ln(1 + x)")
            if (self.facts["fill"] is None) != (self.options["missing"] == "error"):
                raise ValueError("the fact `fill` does not fit the option `missing`")
            if self.facts["divisor"] <= 0.0:
                raise ValueError("the fact `divisor` is not positive")

    def typed(self, raw: Raw) -> Typed:
        typed = numbers(self.known(raw), gaps=not self.is_plain)
        typed = undescribed_error(self.name, typed, "onehot") if self.is_plain else gap_error(self.name, typed)
        if LOG in self.options["scale"]:
            wrong = logarithm_errors(np.where(typed.missing, 0.0, typed.values), self.name)
            typed = Typed(typed.values, typed.missing, {**wrong, **typed.errors})
        return missing_error(self.name, typed, "median") if self.options["missing"] == "error" else typed

    def fitter(self) -> Fitter:
        return _Fitter(self)

    @property
    def width(self) -> int:
        return 2 if self.options["flag"] else 1

    def encode(self, raw: Raw) -> Encoded:
        typed = self.typed(raw)
        if self.is_plain:
            return Encoded(column_of(typed.values), typed.errors)
        assert self.facts is not None
        fill = self.facts["fill"]
        values = typed.values if fill is None else np.where(typed.missing, fill, typed.values)
        values = (self.logged(values) - self.facts["shift"]) / self.facts["divisor"]
        if not self.options["flag"]:
            return Encoded(column_of(values), typed.errors)
        return Encoded(np.stack([values, typed.missing.astype(np.float64)], 1), typed.errors)

    def encode_integers(self, raw: Raw) -> Encoded:
        if not self.is_plain:
            raise TypeError("it is filled or scaled, which gives fractions")
        typed = missing_error(self.name, undescribed_error(self.name, integers(raw), "index"), "median")
        return Encoded(column_of(typed.values), typed.errors)

    def rounded(self, raw: Raw, values: NDArray[Any], dtype: np.dtype[Any]) -> dict[int, str]:
        if self.scaled or raw.values.dtype.kind not in "iuO":
            return {}
        over = np.isfinite(values[:, 0]) & (np.abs(values[:, 0]) > exact_integers(dtype)) & ~raw.missing
        found = ((at, raw.values[at]) for at in np.flatnonzero(over).tolist())
        return {at: rounded_why(self.name, value, dtype) for at, value in found if written_integer(value)}

    @property
    def scaled(self) -> bool:
        return bool(self.options["scale"])

    @property
    def units(self) -> tuple[Unit, ...]:
        flag = (Unit(f"{self.name}.missing", self, 1),) if self.options["flag"] else ()
        return (Unit(self.name, self, 0), *flag)

    def decode(self, values: NDArray[np.float64], at: int = 0) -> NDArray[np.float64]:
        assert self.facts is not None
        if at == 1:  # the flag
            return values
        found: NDArray[np.float64] = values * self.facts["divisor"] + self.facts["shift"]
        return np.expm1(found) if LOG in self.options["scale"] else found

    def logged(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return logarithm(values) if LOG in self.options["scale"] else values


class _Fitter:
    """The scale is fitted to the filled values, as every later step sees them."""

    def __init__(self, column: Number) -> None:
        self._column = column
        self._moments = Moments()
        self._counts = Counts(column.name) if column.options["missing"] == "median" else None
        self._scale = ScaleFitter(column.name, tuple(column.options["scale"]))
        self._gaps = 0

    def add(self, typed: Typed) -> None:
        self._gaps += int(np.count_nonzero(typed.missing))
        there = typed.values[~typed.missing]
        refuse_infinite(there, self._column.name)
        try:
            self._moments.add(there)
            if self._counts is not None:
                self._counts.add(there)
            self._scale.add(self._column.logged(there))
        except OverflowError:
            refuse_infinite(np.array([np.inf]), self._column.name)

    def facts(self) -> dict[str, Any]:
        name, missing = self._column.name, self._column.options["missing"]
        fill: float | None = None
        if missing == "value":
            fill = self._column.options["value"]
        elif not self._moments.count:
            help = "remove the column, or fill it with a number"
            raise DataError(
                "R106", f"all values of `{name[:60]}` are missing", place=f"data.columns.{name[:60]}", help=help
            )
        elif missing == "mean":
            fill = self._moments.mean()
        elif self._counts is not None:
            fill = self._counts.quantile(0.5)
        if fill is not None and self._gaps:
            self._scale.repeat(float(self._column.logged(np.array([fill]))[0]), self._gaps)
        shift, divisor = self._scale.facts()
        refuse_infinite(np.array([shift, divisor]), name)
        return {"fill": fill, "shift": shift, "divisor": divisor}
