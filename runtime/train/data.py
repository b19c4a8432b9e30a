"""The data of a run: arrays checked against the model's interface on opening, and batches in a fixed order.

Order. Row i of epoch e has the i-th 64-bit output of Philox4x64-10 with the key (seed, e) (numpy's ``Philox``, whose
raw stream is stable across versions) as its sort key; rows are taken by rising sort key, ties by row number. So the
order depends on (seed, epoch, global row) alone, never on workers or devices. Batch b is the rows b*B to (b+1)*B of
that order; an incomplete last batch is dropped. A position in the data is (epoch, batch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.dtypes import numpy_dtype
from dslc.runtime.interface import Interface, Tensor, dims_of, size_value
from dslc.runtime.memory import ensure_free
from dslc.runtime.train.arrays import read_array
from dslc.runtime.train.config import Source
from dslc.runtime.train.fields import nearest

_CHUNK: Final = 64 << 20  # bytes that a check looks at in one go
# Largest magnitude up to which every integer is exact in a float.
_EXACT: Final[dict[str, int]] = {"f16": 2**11, "f32": 2**24, "f64": 2**53}


def shuffled(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    """The order of the rows in an epoch, i64[rows]."""
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(rows)
    return np.argsort(keys, kind="stable")


@dataclass(frozen=True)
class Dataset:
    """``by_row``: arrays whose axis 0 counts rows; ``whole``: those that every step gets as they are."""

    by_row: Mapping[str, NDArray[Any]]
    whole: Mapping[str, NDArray[Any]]
    rows: int

    def batches(self, batch: int) -> int:
        """Batches an epoch. Without a batch dim the whole data is one batch."""
        return self.rows // batch if self.by_row else 1

    def order(self, seed: int, epoch: int, *, shuffle: bool) -> NDArray[np.int64]:
        return shuffled(seed, epoch, self.rows) if shuffle else np.arange(self.rows, dtype=np.int64)

    def take(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Fresh arrays of these rows, and the whole ones."""
        return {**{name: array[rows] for name, array in self.by_row.items()}, **self.whole}

    def all(self) -> dict[str, Any]:
        """All rows, as keyword arguments for an evaluation."""
        return {**self.by_row, **self.whole}


def open_dataset(
    sources: Mapping[str, Source],
    interface: Interface,
    sizes: Mapping[str, int],
    section: str,
    *,
    check_finite: bool,
    notice: Callable[[str], None],
) -> Dataset:
    """Open and check the data of a section (``data.train``) for the interface's train inputs.

    ``sizes`` gives each dim its built size. Files are converted to the declared dtypes where nothing is lost;
    f64 to f32 rounds, which ``notice`` is told. Raises DataError R101 to R103 and R106, naming file, record, value.
    """
    wanted = {tensor.name: tensor for tensor in interface.train_inputs}
    for name in sources:
        if name not in wanted:
            close = nearest(name, wanted)
            help = f"did you mean `{close}`?" if close else f"its inputs are {', '.join(wanted)}"
            raise DataError("R102", f"the model has no input `{name}`", place=f"{section}.{name}", help=help)
    by_row: dict[str, NDArray[Any]] = {}
    whole: dict[str, NDArray[Any]] = {}
    for name, tensor in wanted.items():
        if name not in sources:
            help = f"add `{name}: FILE.npz:KEY` to `{section}`"
            raise DataError("R102", f"there is no data for the input `{name}`: {tensor}", place=section, help=help)
        rows = interface.rows_of(tensor)
        if not rows and any(interface.batch in dims_of(size) for size in tensor.shape):
            cause = f"the input `{name}`: {tensor} cannot be cut into batches along {interface.batch}"
            raise DataError("R102", cause, place=f"{section}.{name}", help=f"make {interface.batch} its first axis")
        checked = _Checked(sources[name], tensor, f"{section}.{name}", check_finite, notice)
        (by_row if rows else whole)[name] = checked.open(_shape(tensor, sizes), rows=rows)
    return Dataset(by_row, whole, _rows(by_row, sources, section))


def _shape(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size_value(size, sizes) for size in tensor.shape)


def _rows(by_row: Mapping[str, NDArray[Any]], sources: Mapping[str, Source], section: str) -> int:
    counts = {name: len(array) for name, array in by_row.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{sources[name].name} has {count}" for name, count in counts.items())
        help = "row i of each file must belong to the same sample"
        raise DataError("R102", f"the numbers of rows differ: {listed}", place=section, help=help)
    rows = next(iter(counts.values()), 1)
    if rows == 0:
        raise DataError("R106", "there are no rows", place=section, help="name a file with data")
    return rows


@dataclass(frozen=True)
class _Checked:
    """One array on its way in."""

    source: Source
    tensor: Tensor
    field: str
    check_finite: bool
    notice: Callable[[str], None]

    def open(self, shape: tuple[int, ...], *, rows: bool) -> NDArray[Any]:
        array = read_array(self.source)
        fits = array.shape[1:] == shape[1:] and array.ndim == len(shape) if rows else array.shape == shape
        if not fits:
            expected = ("any number of rows of " if rows else "") + str(list(shape[1:] if rows else shape))
            self._refuse(
                "R102", f"its shape is {list(array.shape)}, expected {expected}", "reshape it and save it again"
            )
        return self._convert(array)

    def _convert(self, array: NDArray[Any]) -> NDArray[Any]:
        target = numpy_dtype(self.tensor.dtype)
        if self.tensor.dtype == "bf16":
            self._refuse("R102", "files hold no bf16", "declare the input as a float")
        if array.dtype.kind == "b":
            self._range(array.view(np.uint8), 0, 1, "a truth value is 0 or 1")
        if target.kind == "f":
            self._floats(array, target)
        elif array.dtype.kind == "f" or (array.dtype.kind == "b" and target.kind != "b"):
            help = f"save it with .astype(numpy.{target.name}) if that is what it means"
            self._refuse("R102", f"its values are {array.dtype.name}, expected {target.name}", help)
        else:
            low, high = (0, 1) if target.kind == "b" else _bounds(target)
            self._range(array, low, high, f"{target.name} holds {low} to {high}")
        if self.tensor.range is not None:
            low, end = self.tensor.range
            self._range(array, low, end - 1, f"`{self.tensor.name}` has {end - low} classes, {low} to {end - 1}")
        if array.dtype == target:  # in native byte order, since the target is
            return array
        need = array.size * target.itemsize
        ensure_free(need, [(self.source.name, need)])
        converted = array.astype(target)
        converted.flags.writeable = False
        return converted

    def _floats(self, array: NDArray[Any], target: np.dtype[Any]) -> None:
        name = self.tensor.dtype
        if array.dtype.kind == "b":
            self._refuse("R102", f"its values are bool, expected {target.name}", "save it as numbers")
        if array.dtype.kind in "iu":
            exact = _EXACT[name]
            self._range(array, -exact, exact, f"{target.name} holds integers exactly up to {exact}")
            return
        largest = float(np.finfo(target).max)
        narrows = array.dtype.itemsize > target.itemsize
        if not (narrows or self.check_finite):
            return
        for start, chunk in _chunks(array):
            finite = np.isfinite(chunk)
            if self.check_finite and not finite.all():
                self._value(chunk, ~finite, start, "is not finite", "mend the data, or set data.check_finite: false")
            if narrows:
                over = finite & (np.abs(chunk) > largest)
                if over.any():
                    self._value(chunk, over, start, f"is too large for {target.name}", "scale the data")
        if narrows:
            self.notice(f"{self.field}: {self.source.name} is {array.dtype.name} and is rounded to {target.name}")

    def _range(self, array: NDArray[Any], low: int, high: int, rule: str) -> None:
        if array.size == 0 or array.dtype.kind == "b":
            return
        for start, chunk in _chunks(array):
            if int(chunk.min()) < low or int(chunk.max()) > high:
                # Python's bounds are cut to the dtype's, so that the comparison stays one of integers.
                least, most = _bounds(chunk.dtype)
                bad = (chunk < max(low, least)) | (chunk > min(high, most))
                self._value(chunk, bad, start, f"is out of range: {rule}", "mend the data, or the model")

    def _value(self, chunk: NDArray[Any], bad: NDArray[np.bool_], start: int, why: str, help: str) -> NoReturn:
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        record = start + int(place[0]) if place else start
        self._refuse("R103", f"record {record}: the value {chunk[place]} {why}", help)

    def _refuse(self, code: str, cause: str, help: str) -> NoReturn:
        raise DataError(code, cause, place=f"{self.field}: {self.source.path} ({self.source.name})", help=help)


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest integer of an integer dtype."""
    info = np.iinfo(dtype.name)
    return int(info.min), int(info.max)


def _chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The array in pieces along axis 0, each with the row it starts at."""
    if array.ndim == 0:
        yield 0, array
        return
    row = max(1, array[:1].nbytes)
    step = max(1, _CHUNK // row)
    for start in range(0, len(array), step):
        yield start, array[start : start + step]
