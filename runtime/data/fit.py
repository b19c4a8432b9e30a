"""Converts values of a file to an input's dtype: only allowed conversions, and only values in range.

A conversion must lose nothing, except that f64 to f32 rounds, which is reported. An error for a value that does not fit
names its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.words import yaml_key
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.rows import Rows, whereabouts
from dslc.runtime.data.source import Source
from dslc.runtime.session.host_memory import ensure_free

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Tensor

_CHUNK: Final = 64 << 20  # bytes checked at once

_CLASSES: Final = (
    "number the classes from 0 (for a column: `data.columns: {NAME: {categories: index}}`), or give the model more"
)
_TOKENS: Final = (
    "give the model as many classes as the tokenizer has tokens; or the file has tokens of another size, u16 or u32"
)
_PIXELS: Final = (
    "the value of a mask's pixel is its class; for 0 and 255 declare the mask as u8 and compare: "
    '`cast(mask > 127, "i32")`; or give the model more classes'
)


class Fit:
    """The conversion of one input's values, whose dtype in the file is ``dtype``."""

    def __init__(
        self,
        files: Sequence[Source],
        tensor: Tensor,
        field: str,
        dtype: np.dtype[Any],
        *,
        check_finite: bool,
        notice: Callable[[str], None],
        rows: Rows | None = None,
        tokens: bool = False,
    ) -> None:
        """``rows``: those of the files, which know the places of their values. ``tokens``: the values are tokens.

        Raises DataError R102 for a dtype that cannot be converted; ``notice`` gets a message about one that is
        rounded."""
        self._files = files
        self._source = source = files[0]
        self._rows = rows
        self._tokens = tokens
        self._tensor = tensor
        self._field = field
        self._check_finite = check_finite
        self.classes: tuple[int, int] | None = None  # the least and the greatest class that was checked
        self.target = target = numpy_dtype(tensor.dtype)
        self.narrows = target.kind == "f" and dtype.kind == "f" and dtype.itemsize > target.itemsize
        if tensor.dtype == "bf16":
            self.refuse("R102", "files cannot hold bf16", "declare the input as a float")
        if target.kind == "f":
            if dtype.kind == "b":
                self.refuse("R102", f"its values are bool, expected {target.name}", "save it as numbers")
        elif dtype.kind == "f" or (dtype.kind == "b" and target.kind != "b"):
            help = f"save whole numbers as {target.name}"
            if target.name == "uint8":
                help += "; pixels in 0..1 with (x * 255).round().astype(numpy.uint8)"
            self.refuse("R102", f"its values are {dtype.name}, expected {target.name}", help)
        if self.narrows:
            notice(f"{field}: {source.name} is {dtype.name} and is rounded to {target.name}")

    def refuse(self, code: str, cause: str, help: str, place: str | None = None) -> NoReturn:
        place = place or f"{self._source.path} ({self._source.name})"
        raise DataError(code, cause, place=f"{self._field}: {place}", help=help)

    def whole(self, array: NDArray[Any]) -> NDArray[Any]:
        """The whole array, checked; the same object if its dtype is the target's. OutOfMemory R401 for too large a
        copy."""
        if array.dtype == self.target:  # also in native byte order, as the target is
            for start, chunk in _chunks(array):
                self._check(chunk, start)
            return array
        need = array.size * self.target.itemsize
        ensure_free(need, [(self._source.name, need)])
        found = np.empty(array.shape, self.target)
        for start, chunk in _chunks(array):
            self._check(chunk, start)
            np.copyto(found[start : start + len(chunk)] if array.ndim else found, chunk, casting="unsafe")
        found.flags.writeable = False
        return found

    def part(self, values: NDArray[Any], records: NDArray[np.int64]) -> NDArray[Any]:
        """The rows with these numbers, checked and converted."""
        self._check(values, records)
        return values if values.dtype == self.target else values.astype(self.target)

    def _check(self, chunk: NDArray[Any], records: int | NDArray[np.int64]) -> None:
        """Raises DataError R103 for a value out of range; ``records``: the rows' numbers, or the number of the first
        row."""
        target, tensor = self.target, self._tensor
        if chunk.dtype.kind == "b":
            self._range(chunk.view(np.uint8), 0, 1, "a truth value is 0 or 1", records)
        elif target.kind == "f" and chunk.dtype.kind == "f":
            self._floats(chunk, records)
        elif target.kind == "f":
            exact = exact_integers(target)
            rule = f"{target.name} holds integers exactly up to {exact}"
            self._range(chunk, -exact, exact, rule, records, "scale the data, or declare the input as integers")
        else:
            low, high = bounds(target)
            self._range(chunk, low, high, f"{target.name} holds {low} to {high}", records)
        if tensor.range is not None and chunk.dtype.kind != "b":
            low, end = tensor.range
            rule = f"`{tensor.name}` has {end - low} classes, {low} to {end - 1}"
            self._range(chunk, low, end - 1, rule, records, self._help_for_classes())
            if chunk.size:
                found = int(chunk.min()), int(chunk.max())
                self.classes = min((self.classes or found)[0], found[0]), max((self.classes or found)[1], found[1])

    def _help_for_classes(self) -> str:
        if self._source.key == "image":
            return _PIXELS
        return _TOKENS if self._tokens else _CLASSES

    def _floats(self, chunk: NDArray[Any], records: int | NDArray[np.int64]) -> None:
        if not (self.narrows or self._check_finite):
            return
        finite = np.isfinite(chunk)
        if self._check_finite and not finite.all():
            help = "fix the data, or set data.check_finite: false"
            self._value(chunk, ~finite, records, "is not finite", help)
        if self.narrows:
            over = finite & (np.abs(chunk) > largest(self.target))
            if over.any():
                self._value(chunk, over, records, f"is too large for {self.target.name}", "scale the data")

    def _range(
        self,
        chunk: NDArray[Any],
        low: int,
        high: int,
        rule: str,
        records: int | NDArray[np.int64],
        help: str = "fix the data or the model",
    ) -> None:
        if chunk.size == 0:
            return
        if int(chunk.min()) < low or int(chunk.max()) > high:
            # Python's bounds are clipped to the dtype's, so that the comparison is one of integers.
            least, most = bounds(chunk.dtype)
            bad = (chunk < max(low, least)) | (chunk > min(high, most))
            self._value(chunk, bad, records, f"is out of range: {rule}", help)

    def _value(
        self, chunk: NDArray[Any], bad: NDArray[np.bool_], records: int | NDArray[np.int64], why: str, help: str
    ) -> NoReturn:
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        row = int(place[0]) if place else 0
        record = records + row if isinstance(records, int) else int(records[row])
        at = int(np.ravel_multi_index(place[1:], bad.shape[1:])) if len(place) > 1 else 0
        known = (0, record, None, None) if self._rows is None else whereabouts(self._rows, record, at)
        file, record, line, column = known
        if column is not None and chunk[place] != chunk[place]:
            help = f"{help}; `data.columns: {{{yaml_key(column[:60])}: {{missing: median}}}}` would fill it"
        source = self._files[file]
        where = f"{source.path} ({source.name})" if column is None else f"{line}, column `{column[:60]}`"
        self.refuse("R103", f"record {record}: the value {chunk[place]} {why}", help, where)


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite value of a float dtype."""
    return float(np.finfo(dtype.name).max)


def exact_integers(dtype: np.dtype[Any]) -> int:
    """The largest magnitude up to which a float dtype represents every integer."""
    return int(2 ** (np.finfo(dtype.name).nmant + 1))


def bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest value of an integer dtype; of bool 0 and 1."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype.name)
    return int(info.min), int(info.max)


def _chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Pieces of the array along axis 0, each with its first row number."""
    if array.ndim == 0:
        yield 0, array
        return
    row = max(1, array[:1].nbytes)
    step = max(1, _CHUNK // row)
    for start in range(0, len(array), step):
        yield start, array[start : start + step]
