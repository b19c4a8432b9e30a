"""One input of a model as rows of data: opened, checked, converted, augmented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.data import augment
from dslc.runtime.data.arrays import Accept, read_array
from dslc.runtime.data.fit import Fit
from dslc.runtime.data.idx import read_idx
from dslc.runtime.data.images import ImageRows, labels_of
from dslc.runtime.data.rows import AT_ONCE, ArrayRows, JoinedRows, Rows, ShapedRows
from dslc.runtime.data.source import Source
from dslc.runtime.data.table import TableRows
from dslc.runtime.data.tokens import TokenRows

_CHECKED: Final = 16 << 20  # bytes checked at once


@dataclass(frozen=True)
class Wanted:
    """An input and its sources. ``shape`` is that of one row, as numbers. Can be sent to a worker."""

    field: str
    files: tuple[Source, ...]
    tensor: Tensor
    shape: tuple[int, ...]
    check_finite: bool
    steps: tuple[augment.Step, ...] = ()

    @property
    def by_image(self) -> bool:
        """True if each row is decoded from a file of its own."""
        return self.files[0].kind == "folder" and self.files[0].key == "image"

    def as_data(self) -> dict[str, Any]:
        tensor = self.tensor
        return {
            "field": self.field,
            "files": [source.as_data() for source in self.files],
            "tensor": [
                tensor.name,
                tensor.dtype,
                list(tensor.shape),
                None if tensor.range is None else list(tensor.range),
            ],
            "shape": list(self.shape),
            "check_finite": self.check_finite,
            "steps": augment.as_data(self.steps),
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Wanted:
        name, dtype, shape, limits = data["tensor"]
        return cls(
            data["field"],
            tuple(Source.of_data(source) for source in data["files"]),
            Tensor(name, dtype, tuple(shape), None if limits is None else (limits[0], limits[1])),
            tuple(data["shape"]),
            data["check_finite"],
            augment.of_data(data["steps"]),
        )


@dataclass(frozen=True)
class Column:
    """The rows of an input. ``fit`` is None if all values have already been checked and converted."""

    wanted: Wanted
    rows: Rows
    fit: Fit | None

    @property
    def bad(self) -> Mapping[int, tuple[str, str]]:
        """Rows known to be unreadable, with place and reason."""
        return self.rows.bad if isinstance(self.rows, TableRows | JoinedRows) else {}

    def read(self, rows: NDArray[np.int64], seed: int, epoch: int, *, training: bool) -> NDArray[Any]:
        """A fresh array [len(rows), *shape] in the input's dtype.

        Raises BadSample, and DataError R103 for a value that does not fit.
        """
        values = self.rows.read(rows)
        if self.fit is not None:
            values = self.fit.part(values, rows)
        return augment.apply(self.wanted.steps, values, rows, seed, epoch, training=training)


def open_column(wanted: Wanted, notice: Callable[[str], None]) -> Column:
    """Open an input's data; small data is checked at once. Raises DataError R101 to R103, R106."""
    target = numpy_dtype(wanted.tensor.dtype)
    rows = _shaped(_joined([_opened(source, wanted, target) for source in wanted.files], wanted), wanted)
    try:
        augment.check(wanted.steps, wanted.shape, target)
    except ValueError as error:
        place = wanted.field.replace(".train.", ".augment.").replace(".eval.", ".augment.")
        raise DataError("R104", str(error), place=place, help="fix the list of data.augment") from error
    fit = Fit(wanted.files[0], wanted.tensor, wanted.field, rows.dtype, check_finite=wanted.check_finite, notice=notice)
    if isinstance(rows, ArrayRows) and rows.in_memory:
        return Column(wanted, ArrayRows(fit.whole(rows.array)), None)
    column = Column(wanted, rows, fit)
    if rows.in_memory:
        _check_all(column)
    elif not wanted.by_image:
        notice(f"{wanted.field}: {wanted.files[0].name} is large; its values are checked while they are read")
    return column


def _check_all(column: Column) -> None:
    """Checks every readable row; DataError R103 for a value that does not fit."""
    assert column.fit is not None
    every = np.arange(column.rows.count, dtype=np.int64)
    good = every[~np.isin(every, np.fromiter(column.bad, np.int64))]
    size = max(1, prod(column.rows.shape) * column.rows.dtype.itemsize)
    step = max(1, _CHECKED // size)
    for start in range(0, len(good), step):
        part = good[start : start + step]
        column.fit.part(column.rows.read(part), part)


def read_whole(wanted: Wanted, notice: Callable[[str], None]) -> NDArray[Any]:
    """An input without rows, passed unchanged to every step. Raises the errors of ``open_column``."""
    source = wanted.files[0]
    if len(wanted.files) > 1 or source.kind not in ("npz", "npy", "idx"):
        cause = "an input without rows is one array in an .npz, .npy or idx file"
        raise DataError("R102", cause, place=f"{wanted.field}: {source.path}", help="save it with numpy.save")

    def accept(shape: tuple[int, ...]) -> None:
        if shape != wanted.shape:
            raise _misshaped(source, wanted, shape, str(list(wanted.shape)))

    array = _array(source, accept)
    fit = Fit(source, wanted.tensor, wanted.field, array.dtype, check_finite=wanted.check_finite, notice=notice)
    return fit.whole(array)


def _array(source: Source, accept: Accept) -> NDArray[Any]:
    return read_idx(source, accept) if source.kind == "idx" else read_array(source, accept)


def _misshaped(source: Source, wanted: Wanted, shape: tuple[int, ...], expected: str) -> DataError:
    cause = f"its shape is {list(shape)}, expected {expected}"
    place = f"{wanted.field}: {source.path} ({source.name})"
    return DataError("R102", cause, place=place, help="reshape it and save it again")


def _opened(source: Source, wanted: Wanted, target: np.dtype[Any]) -> Rows:
    if source.kind == "csv":
        return TableRows(source, wanted.shape, target)
    if source.kind == "bin":
        return TokenRows(source, wanted.shape)
    if source.kind == "folder":
        if source.key == "image":
            return ImageRows(source, wanted.shape)
        labels = labels_of(source)
        _require_rows(source, wanted, labels.shape)
        return ArrayRows(labels)
    return ArrayRows(_array(source, lambda shape: _require_rows(source, wanted, shape)))


def _require_rows(source: Source, wanted: Wanted, shape: tuple[int, ...]) -> None:
    if not shape or not _same_rows(source, shape[1:], wanted.shape):
        raise _misshaped(source, wanted, shape, f"any number of rows of {list(wanted.shape)}")


def _same_rows(source: Source, shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True if rows have the wanted shape. Rows of an idx file, which has no channels, may lack axes of size 1."""
    if shape == wanted or source.kind != "idx":
        return shape == wanted
    return [size for size in shape if size != 1] == [size for size in wanted if size != 1]


def _joined(parts: Sequence[Rows], wanted: Wanted) -> Rows:
    first = parts[0]
    for source, part in zip(wanted.files, parts):
        if part.shape != first.shape or part.dtype != first.dtype:
            this, other = (f"{p.dtype.name} rows of {list(p.shape)}" for p in (part, first))
            cause = f"it holds {this}, the first of the files {other}"
            raise DataError("R102", cause, place=f"{wanted.field}: {source.path}", help="write all files alike")
    if len(parts) == 1:
        return first
    joined = JoinedRows(parts)
    loaded = all(isinstance(p, ArrayRows) and not isinstance(p.array, np.memmap) for p in parts)
    joined.in_memory &= loaded or joined.count * prod(joined.shape) * joined.dtype.itemsize <= AT_ONCE
    return joined


def _shaped(rows: Rows, wanted: Wanted) -> Rows:
    """The rows reshaped to the input's row shape; the number of elements per row is equal."""
    if rows.shape == wanted.shape:
        return rows
    if isinstance(rows, ArrayRows):
        return ArrayRows(rows.array.reshape(rows.count, *wanted.shape))
    return ShapedRows(rows, wanted.shape)
