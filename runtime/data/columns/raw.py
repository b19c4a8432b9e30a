"""Raw values of a column, as a file or a caller gives them. ``typed.py`` says what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import InputError

MICROSECONDS: Final = np.dtype("M8[us]")


@dataclass(frozen=True)
class Raw:
    """``values``: a numeric, bool or ``M8[us]`` array [n], or an object array of str, int, float, bool and None.

    ``missing``: bool[n]; the values there mean nothing.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.int64]) -> Raw:
        return Raw(self.values[rows], self.missing[rows])


def raw_objects(values: Sequence[Any]) -> Raw:
    """Python values (str, int, float, bool, date, datetime, None) as a raw column."""
    array = np.empty(len(values), object)
    array[:] = values
    return Raw(array, np.fromiter((value is None or value == "" for value in values), bool, len(values)))


def raw_of(values: Any) -> Raw:
    """A caller's values: a list, an array, or a pandas ``Series``. None, NaN in objects, NA, NaT and "" are missing."""
    array = np.asarray(values) if not isinstance(values, list | tuple) else np.empty(len(values), object)
    if isinstance(values, list | tuple):
        array[:] = values
    if array.ndim != 1:
        raise InputError("R105", f"a column has the shape {list(array.shape)}", place="data", help="give one axis")
    kind = array.dtype.kind
    if kind in "fiub":
        return Raw(array, np.zeros(len(array), bool))
    if kind == "M":
        return Raw(array.astype(MICROSECONDS), np.isnat(array))
    return raw_objects([None if _is_gap(value) else value for value in array.tolist()])


def _is_gap(value: object) -> bool:
    """None, NaN, and pandas' NA and NaT, which are known by the names of their types: pandas is never imported."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )
