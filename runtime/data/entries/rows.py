"""A dataset whose rows can be read by number: each row is asked for when it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError, DslcError
from dslc.base.words import reason
from dslc.runtime.data.entries.call import Call, call_of
from dslc.runtime.data.entries.loader import guarded, loaded
from dslc.runtime.data.entries.values import Broken, Converter
from dslc.runtime.data.rows import BadSample

if TYPE_CHECKING:
    from dslc.runtime.data.source import Source
    from dslc.runtime.data.wanted import Wanted

FIRST: Final = 8  # rows of which one must be good, because it says what the others are


def by_number(dataset: Any) -> bool:
    """True if a dataset has a length and rows by index."""
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, Mapping)


def iterated(dataset: Any, call: Call) -> Iterator[Any]:
    """The rows of a dataset in their order; ``Broken`` for one that cannot be read by its number. Raises DataError R101
    if the dataset cannot be iterated."""
    if by_number(dataset):
        for at in range(length_of(dataset, call)):
            try:
                with redirect_stdout(sys.stderr):
                    row = dataset[at]
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001  (the package's code may raise anything)
                row = Broken(f"{type(error).__name__}: {reason(error)}")
            yield row
        return
    with guarded(call.name, "it is neither rows by number nor an iterable"):
        rows = iter(dataset)
    count = 0
    while True:
        with guarded(call.name, f"it failed after {count} rows"):
            try:
                row = next(rows)
            except StopIteration:
                return
        yield row
        count += 1


def length_of(dataset: Any, call: Call) -> int:
    with guarded(call.name, "its `len` failed"):
        return len(dataset)


def selected(dataset: Any, fields: list[str | None]) -> Any:
    """The dataset with these fields alone, if it can leave out others, whose decoding costs time."""
    select = getattr(dataset, "select_columns", None)
    names = sorted({field for field in fields if field is not None})
    known = getattr(dataset, "column_names", None)
    if select is None or None in fields or (known is not None and not set(names) <= set(known)):
        return dataset
    return select(names)


class EntryRows:
    """Row i is ``dataset[i]``. Some rows are read twice on opening: a dataset must give the same bits each time."""

    in_memory = False

    def __init__(self, source: Source, wanted: Wanted) -> None:
        """Raises DataError R101 if the dataset fails or is not the same twice, R102 if its rows do not fit the input,
        R106 if it is empty."""
        self._call = call = call_of(source)
        self._place = f"entry:{call.name}"
        self._converter = Converter(wanted, source, call.field)
        dataset = loaded(call)
        self.count = length_of(dataset, call)
        with guarded(call.name, "its `select_columns` failed"):
            self._dataset = selected(dataset, [self._converter.field])
        self.shape = wanted.shape
        place = f"{wanted.field}: {source.name}"
        if self.count == 0:
            raise DataError("R106", "the dataset has no rows", place=place, help="check the arguments, such as `split`")
        self.dtype = self._first(place)
        self._compare(place)

    def _first(self, place: str) -> np.dtype[Any]:
        why = ""
        for row in range(min(self.count, FIRST)):
            try:
                self._row(row)
            except BadSample as bad:
                why = why or f"row {row}: {bad.why}"
                continue
            assert self._converter.dtype is not None
            return self._converter.dtype
        raise DataError("R102", why, place=place, help="change the input, the field, or the dataset")

    def _compare(self, place: str) -> None:
        """Refuse a dataset that draws its rows at random."""
        for row in sorted({0, self.count // 2, self.count - 1}):
            try:
                same = self._row(row).tobytes() == self._row(row).tobytes()
            except BadSample:
                continue  # it is reported when the row is needed
            if not same:
                cause = f"row {row} differs if it is read twice, so a run could not be repeated"
                help = "leave random transforms to data.augment, or add `spool=true`, which stores each row once"
                raise DataError("R101", cause, place=place, help=help)

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if self._converter.of_texts:
            with suppress(BadSample, ValueError):  # one by one, to find the first that cannot be read
                return self._converter.texts([self._value(row) for row in rows.tolist()])
        found = np.empty((len(rows), *self.shape), self.dtype)
        for at, row in enumerate(rows.tolist()):
            found[at] = self._row(row)
        return found

    def _value(self, row: int) -> Any:
        try:
            with redirect_stdout(sys.stderr):
                return self._dataset[row]
        except (DslcError, MemoryError):
            raise
        except Exception as error:  # the package's code may raise anything
            raise BadSample(row, f"{self._place}, row {row}", f"{type(error).__name__}: {reason(error)}") from error

    def _row(self, row: int) -> NDArray[Any]:
        value = self._value(row)
        try:
            return self._converter.row(value)
        except ValueError as error:
            raise BadSample(row, f"{self._place}, row {row}", reason(error)) from error
        except (DslcError, MemoryError):
            raise
        except Exception as error:  # the package's code may raise anything
            raise BadSample(row, f"{self._place}, row {row}", f"{type(error).__name__}: {reason(error)}") from error


def class_names(dataset: Any, call: Call) -> tuple[str, ...] | None:
    """The names of the classes whose indices a field holds, if the dataset says them."""
    names = getattr(dataset, "class_names", None)
    if not callable(names) or call.field is None:
        return None
    with guarded(call.name, "its `class_names` failed"):
        found = names(call.field)
        return None if found is None else tuple(map(str, found))
