"""The one meaning of a column's raw values as numbers, integers, categories and dates, or why a value has none.

The formats differ in what they know: a CSV file holds only text, Parquet has dtypes. So that the same table gives the
same bits in every format, a text that spells a number is that number, ``True`` is ``true``, and an empty text is a gap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.words import yaml_key
from dslc.runtime.data.columns.raw import MICROSECONDS, Raw
from dslc.runtime.data.fit import exact_integers

#: Texts that stand for a missing number or date, in lower case. A missing category is only an empty text.
GAPS: Final = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>", "?"})
#: Ends the cause if a text would be a number in another form.
NUMBER_FORM: Final = "; write numbers as 1234.5"
#: Texts that are truth values, in lower case -> the texts of their numbers.
TRUTH: Final = {"true": "1", "false": "0"}
LONGEST_TEXT: Final = 256  # characters of a category
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ]|\Z)")
_WHOLE = re.compile(r"-?[0-9]+\.0+\Z")
_WRITTEN = re.compile(r"[-+]?[0-9]+\Z")
_NUMBER_LIKE = re.compile(r"(?:[^\w\s]{1,3} ?)?[0-9](?:[0-9.,'_ \u00a0\u202f]{0,40}[0-9])?(?: ?[^\w\s]{1,3})?\Z")
_EXACT: Final = 2**53
_MOST_DIGITS: Final = 20  # of an integer of 64 bits, with its sign
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,9})?\Z|(?i:[-+]?(?:nan|inf)\Z)")


@dataclass(frozen=True)
class Typed:
    """Values of one kind. ``errors``: why the value at a position cannot be one; ``missing`` and wrong values mean
    nothing."""

    values: NDArray[Any]
    missing: NDArray[np.bool_]
    errors: dict[int, str] = field(default_factory=dict)


def without(raw: Raw, gaps: Sequence[str]) -> Raw:
    """The column with a gap wherever a value is one of these texts, spaces around it aside, or the number that one of
    them spells: equal in every format."""
    if not gaps:
        return raw
    known = {float(gap) for gap in gaps if _FLOAT.match(gap)}
    kind = raw.values.dtype.kind
    if kind in "fiu":
        return Raw(raw.values, raw.missing | np.isin(raw.values, [*known]))
    values = raw.values.tolist() if kind in "Ob" else [category_text(value) for value in raw.values]
    found = (_is_one_of(value, gaps, known) for value in values)
    return Raw(raw.values, raw.missing | np.fromiter(found, bool, len(values)))


def _is_one_of(value: object, texts: Sequence[str], known: set[float]) -> bool:
    if isinstance(value, str):
        text = value.strip()
        return text in texts or (_FLOAT.match(text) is not None and float(text) in known)
    if isinstance(value, bool):
        return str(value).lower() in texts
    return isinstance(value, int | float) and value in known


def numbers(raw: Raw, *, gaps: bool) -> Typed:
    """f64[n]. ``gaps``: NaN, and a text such as ``NA``, are missing values; else NaN is a value and ``NA`` is wrong."""
    kind = raw.values.dtype.kind
    if kind == "f":
        values = raw.values.astype(np.float64)
        return Typed(values, raw.missing | np.isnan(values) if gaps else raw.missing)
    if kind in "iub":
        values = raw.values.astype(np.float64)
        wide = {} if kind == "b" or raw.values.dtype.itemsize < 8 else _inexact(raw)
        return Typed(values, raw.missing, wide)
    if kind == "M":
        return Typed(np.zeros(len(raw)), raw.missing, _all_wrong(raw, "a date is not a number"))
    values, missing, errors = np.zeros(len(raw)), raw.missing.copy(), dict[int, str]()
    for at in np.flatnonzero(~missing).tolist():
        found = _number(raw.values[at], gaps)
        if found is None:
            missing[at] = True
        elif isinstance(found, str):
            errors[at] = found
        else:
            values[at] = found
            if gaps and found != found:
                missing[at] = True
    return Typed(values, missing, errors)


def integers(raw: Raw) -> Typed:
    """i64[n]: only integers, and floats and texts that are one exactly, such as ``3.0`` and ``3e2``."""
    kind = raw.values.dtype.kind
    values, missing, errors = np.zeros(len(raw), np.int64), raw.missing, dict[int, str]()
    if kind in "iub":
        values = raw.values.astype(np.int64)
        if raw.values.dtype == np.uint64:
            errors = dict.fromkeys(np.flatnonzero((values < 0) & ~missing).tolist(), "a value does not fit 64 bits")
        return Typed(values, missing, errors)
    if kind == "M":
        return Typed(values, missing, _all_wrong(raw, "a date is not an integer"))
    for at in np.flatnonzero(~missing).tolist():
        value = raw.values[at]
        if isinstance(value, str):
            found = integer_of(TRUTH.get(value.strip(" ").lower(), value))
        elif isinstance(value, float | np.floating) and _EXACT <= abs(float(value)) < np.inf:
            errors[at] = _not_exact(value)  # which integer it was is unknown
            continue
        else:
            whole = isinstance(value, int | np.integer | np.bool_) or (
                isinstance(value, float | np.floating) and abs(float(value)) < _EXACT and value == int(value)
            )
            found = int(value) if whole else None
        if found is None:
            errors[at] = not_an_integer(value)
        elif not -(2**63) <= found < 2**63:
            errors[at] = "a value does not fit 64 bits"
        else:
            values[at] = found
    return Typed(values, missing, errors)


def integer_of(text: str) -> int | None:
    """The integer that a text is exactly, spaces around it aside; None for another text."""
    text = text.strip(" ")
    if _INTEGER.match(text):
        return int(text)
    if not _FLOAT.match(text):
        return None
    value = Decimal(text)
    if not value.is_finite():
        return None
    if value.adjusted() > _MOST_DIGITS:
        return 2**64  # fits no dtype; the integer itself may have a billion digits
    return int(value) if value == value.to_integral_value() else None


def written_integer(value: object) -> bool:
    """Whether a value is written as an integer: of an integer dtype, or a text of digits alone."""
    if isinstance(value, str):
        return _WRITTEN.match(value.strip(" ")) is not None
    return isinstance(value, int | np.integer)


def rounded_why(name: str, value: object, dtype: np.dtype[Any]) -> str:
    """Why an integer of a column cannot be a value of a float dtype."""
    return (
        f"`{name[:60]}` is {str(value)[:40].strip()}, but {dtype.name} holds integers exactly up to "
        f"{exact_integers(dtype)}; `data.columns: {{{yaml_key(name[:60])}: {{scale: standard}}}}` would scale it "
        "first; leave an id out, or declare the input as integers"
    )


def in_column(name: str, why: str) -> str:
    """A reason that names its column."""
    return why if f"`{name[:60]}`" in why or f"{{{yaml_key(name[:60])}: {{" in why else f"`{name[:60]}`: {why}"


def categories(raw: Raw) -> Typed:
    """An object array of texts [n]: 3, 3.0, and the texts ``3`` and ``3.0`` are all the category ``3``."""
    values, missing, errors = np.empty(len(raw), object), raw.missing.copy(), dict[int, str]()
    for at in np.flatnonzero(~missing).tolist():
        try:
            text = category_text(raw.values[at])
        except ValueError as error:
            errors[at] = str(error)
            continue
        if text:
            values[at] = text
        else:
            missing[at] = True
    return Typed(values, missing, errors)


def category_text(value: object) -> str:
    """The name of a category; empty for a gap. ValueError for a value that cannot be one."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"{value[:40]!r}... is longer than {LONGEST_TEXT} characters")
        if _WHOLE.match(value):
            return value.partition(".")[0]
        lower = value.lower()
        return lower if lower in ("true", "false") else value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        if value != value:
            return ""
        return str(int(value)) if abs(float(value)) < _EXACT and value == int(value) else str(value)
    if isinstance(value, np.datetime64):
        return str(value.astype("M8[D]") if value == value.astype("M8[D]") else value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise ValueError(f"a value of type {type(value).__name__} is not a category")


def moments(raw: Raw, format: str | None) -> Typed:
    """M8[us][n]: texts in ISO 8601, or in ``format`` (of Python's strptime). A time zone is converted to UTC."""
    if raw.values.dtype.kind == "M":
        return Typed(raw.values.astype(MICROSECONDS), raw.missing | np.isnat(raw.values))
    values, missing, errors = np.zeros(len(raw), MICROSECONDS), raw.missing.copy(), dict[int, str]()
    if raw.values.dtype.kind != "O":
        return Typed(values, missing, _all_wrong(raw, "a number is not a date"))
    for at in np.flatnonzero(~missing).tolist():
        value = raw.values[at]
        if isinstance(value, str) and value.strip().lower() in GAPS:
            missing[at] = True
            continue
        try:
            values[at] = _moment(value, format)
        except (ValueError, OverflowError):
            form = "an ISO date, such as 2024-02-29" if format is None else f"a date of the format {format[:40]!r}"
            errors[at] = f"{str(value)[:40]!r} is not {form}"
    return Typed(values, missing, errors)


def _moment(value: object, format: str | None) -> np.datetime64:
    if isinstance(value, str):
        text = value.strip()
        found = datetime.fromisoformat(text) if format is None else datetime.strptime(text, format)
    elif isinstance(value, datetime):
        found = value
    elif isinstance(value, date):
        found = datetime(value.year, value.month, value.day)
    else:
        raise ValueError
    if found.tzinfo is not None:
        found = found.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(found, "us")


def not_a_number(value: object) -> str:
    """Why a value is not a number, and the form of numbers if it seems to be meant as one."""
    why = f"{_quoted(value)} is not a number"
    return why + NUMBER_FORM if isinstance(value, str) and _NUMBER_LIKE.match(value.strip()) else why


def not_an_integer(value: object) -> str:
    """Why a value is not an integer."""
    return f"{_quoted(value)} is not an integer"


def is_date(why: str) -> bool:
    """Whether a value is no number, for this reason, because it is a date."""
    return why.startswith(("a date ", "the date "))


def _quoted(value: object) -> str:
    """A value for a message; texts that seem to be dates are called so."""
    shown = f"{str(value)[:40]!r}"
    return f"the date {shown}" if isinstance(value, str) and _DATE.match(value.strip()) else shown


def _not_exact(value: object) -> str:
    return f"{str(value)[:40]} is not exact in 64 bits of float"


def _number(value: object, gaps: bool) -> float | str | None:
    """The number; None for a gap; else why it is not a number."""
    if isinstance(value, str):
        text = value.strip(" ")
        if _FLOAT.match(text):
            return float(text)
        lower = text.lower()
        if gaps and lower in GAPS:
            return None
        if lower in TRUTH:
            return float(TRUTH[lower])
    elif isinstance(value, bool | int | float | np.number | np.bool_):
        if isinstance(value, int | np.integer) and abs(int(value)) > _EXACT:
            return _not_exact(value)
        return float(value)
    return not_a_number(value)


def _inexact(raw: Raw) -> dict[int, str]:
    values: NDArray[Any] = raw.values
    wide = (values > _EXACT) if values.dtype.kind == "u" else (values > _EXACT) | (values < -_EXACT)
    bad = np.flatnonzero(wide & ~raw.missing).tolist()
    return {at: _not_exact(values[at]) for at in bad}


def _all_wrong(raw: Raw, why: str) -> dict[int, str]:
    return dict.fromkeys(np.flatnonzero(~raw.missing).tolist(), why)
