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
from dslc.runtime.data.augment.apply import apply, check, early
from dslc.runtime.data.augment.draws import Draws
from dslc.runtime.data.augment.steps.resized_crop import ResizedCrop
from dslc.runtime.data.fit import Fit
from dslc.runtime.data.format import ArrayFormat, misshaped
from dslc.runtime.data.names import format_of
from dslc.runtime.data.rows import (
    AT_ONCE,
    ArrayRows,
    JoinedRows,
    Rows,
    ShapedRows,
    Windowed,
    known_bad,
    known_late,
    windowed,
)
from dslc.runtime.data.source import Source
from dslc.runtime.data.text.texts import text_key
from dslc.runtime.data.wanted import Wanted

_CHECKED: Final = 16 << 20  # bytes checked at once
_LARGE_ROW: Final = 32 << 10  # bytes; for smaller rows, flip, crop and normalize cost about as much as another process


@dataclass(frozen=True)
class Column:
    """The rows of an input. ``fit`` is None if all values have already been checked and converted."""

    wanted: Wanted
    rows: Rows
    fit: Fit | None

    @property
    def bad(self) -> Mapping[int, tuple[str, str]]:
        """Rows known to be unreadable, with place and reason."""
        return known_bad(self.rows)

    @property
    def late(self) -> Mapping[int, tuple[str, str]]:
        """Rows known not to fit what was fitted, with place and reason."""
        return known_late(self.rows)

    @property
    def decodes(self) -> bool:
        """True if each row is decoded from a file of its own."""
        source = self.wanted.files[0]
        return format_of(source).decodes(source)

    @property
    def costly(self) -> bool:
        """True if augmentation costs much more than a copy, and processes can do it: each may hold the data."""
        row = prod(self.rows.shape) * self.rows.dtype.itemsize
        heavy = any(step.pixels or row >= _LARGE_ROW for step in self.wanted.steps)
        return heavy and self.rows.count * row <= AT_ONCE

    def read(self, rows: NDArray[np.int64], seed: int, epoch: int, *, training: bool) -> NDArray[Any]:
        """A fresh array [len(rows), *shape] in the input's dtype.

        Raises BadSample, and DataError R103 for a value that does not fit.
        """

        def augmented(values: NDArray[Any], first: int, end: int) -> NDArray[Any]:
            return apply(steps[first:end], values, rows, seed, epoch, training=training, first=first)

        steps, done = self.wanted.steps, 0
        crop = steps[0] if training and steps and windowed(self.rows) else None
        if isinstance(crop, ResizedCrop) and isinstance(self.rows, Windowed):
            values, done = self._windows(crop, self.rows, rows, seed, epoch), 1
        else:
            values = self.rows.read(rows)
        values = augmented(values, done, self._early)
        if self.fit is not None:
            values = self.fit.part(values, rows)
        return augmented(values, max(done, self._early), len(steps))

    def batch(self, rows: NDArray[np.int64], seed: int, epoch: int, *, training: bool) -> NDArray[Any]:
        """``read`` of a whole batch, whose rows are mixed if the input is to be mixed."""
        values = self.read(rows, seed, epoch, training=training)
        self.mix(values, rows, seed, epoch, training=training)
        return values

    def mix(self, values: NDArray[Any], rows: NDArray[np.int64], seed: int, epoch: int, *, training: bool) -> None:
        """Mix the rows of a whole batch in place, if the input is to be mixed."""
        if training and self.wanted.mix is not None:
            self.wanted.mix.mix(values, rows, seed, epoch)

    @property
    def _early(self) -> int:
        """How many of the steps come before the conversion."""
        return early(self.wanted.steps, self.rows.dtype, numpy_dtype(self.wanted.tensor.dtype))

    @staticmethod
    def _windows(crop: ResizedCrop, pictures: Windowed, rows: NDArray[np.int64], seed: int, epoch: int) -> NDArray[Any]:
        """The random windows of the pictures, before they are scaled to the size of a row."""
        draws = Draws(seed, epoch, rows, 1).of(0)
        return pictures.read_windows(rows, lambda at, height, width: crop.window(height, width, draws.row(at)))


def open_column(wanted: Wanted, notice: Callable[[str], None]) -> Column:
    """Open an input's data; small data is checked at once. Raises DataError R101 to R103, R106."""
    target = numpy_dtype(wanted.tensor.dtype)
    rows = _shaped(_joined([format_of(source).open(source, wanted) for source in wanted.files], wanted), wanted)
    try:
        check(wanted.steps, wanted.shape, rows.dtype, target)
        if wanted.mix is not None:
            wanted.mix.check(wanted.shape, target)
    except ValueError as error:
        place = wanted.field.replace(".train.", ".augment.").replace(".eval.", ".augment.")
        raise DataError("R104", str(error), place=place, help="fix the list of data.augment") from error
    fit = Fit(
        wanted.files,
        wanted.tensor,
        wanted.field,
        rows.dtype,
        check_finite=wanted.check_finite,
        notice=notice,
        rows=rows,
        tokens=_are_tokens(wanted.files[0]),
    )
    if isinstance(rows, ArrayRows) and rows.in_memory and not early(wanted.steps, rows.dtype, target):
        checked = Column(wanted, ArrayRows(fit.whole(rows.array)), None)
        _tell_classes(fit, wanted, rows.count, notice)
        return checked
    column = Column(wanted, rows, fit)
    if rows.in_memory:
        _check_all(column)
        _tell_classes(fit, wanted, rows.count, notice)
    elif not column.decodes:
        notice(f"{wanted.field}: {wanted.files[0].name} is large; its values are checked while they are read")
    return column


def _are_tokens(source: Source) -> bool:
    return format_of(source).windows or text_key(source.key or "") is not None


def _tell_classes(fit: Fit, wanted: Wanted, rows: int, notice: Callable[[str], None]) -> None:
    """Say if all training rows have one class, or none has the first one, as classes that are counted from 1. Named
    classes were looked at when they were numbered."""
    named = wanted.fitted is not None and wanted.fitted.class_names(wanted.tensor.name) is not None
    training = wanted.field.startswith("data.train.")
    if named or not training or fit.classes is None or wanted.tensor.range is None or wanted.shape or rows < 2:
        return
    (least, most), (low, end) = fit.classes, wanted.tensor.range
    name = f"{wanted.field}: {wanted.files[0].name}"
    if least == most and end - low > 1:
        notice(f"{name}: all {rows:,} rows have the class {least}, of {low} to {end - 1}")
    elif least > low:
        has = f"they have {least} to {most}, and the model counts from {low} to {end - 1}"
        notice(f"{name}: no row has the class {low}: {has}")


def _check_all(column: Column) -> None:
    """Checks every readable row; DataError R103 for a value that does not fit."""
    assert column.fit is not None
    every = np.arange(column.rows.count, dtype=np.int64)
    good = every[~np.isin(every, np.fromiter({*column.bad, *column.late}, np.int64))]
    size = max(1, prod(column.rows.shape) * column.rows.dtype.itemsize)
    step = max(1, _CHECKED // size)
    for start in range(0, len(good), step):
        part = good[start : start + step]
        column.fit.part(column.rows.read(part), part)


def read_whole(wanted: Wanted, notice: Callable[[str], None]) -> NDArray[Any]:
    """An input without rows, passed unchanged to every step. Raises the errors of ``open_column``."""
    source, format = wanted.files[0], format_of(wanted.files[0])
    if len(wanted.files) > 1 or not isinstance(format, ArrayFormat):
        cause = "an input without rows is one array in an .npz, .npy or idx file"
        raise DataError("R102", cause, place=f"{wanted.field}: {source.path}", help="save it with numpy.save")

    def accept(shape: tuple[int, ...]) -> None:
        if shape != wanted.shape:
            raise misshaped(source, wanted, shape, str(list(wanted.shape)))

    array = format.read(source, accept)
    fit = Fit(wanted.files, wanted.tensor, wanted.field, array.dtype, check_finite=wanted.check_finite, notice=notice)
    return fit.whole(array)


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
