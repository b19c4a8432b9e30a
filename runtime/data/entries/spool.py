"""Rows of a dataset stored once, in one file of the cache, which every later run maps into memory.

All fields that a section reads come from one pass, so they belong together even if the next pass had another order. The
file holds records of one size, one per row, and at its end a description: the dtype and shape of each field, the rows
that could not be read, and the SHA-256 of the records.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base import canonical
from dslc.base.errors import ArtifactError, DataError
from dslc.base.failpoint import fail
from dslc.base.publish import Sink
from dslc.base.schema import Int, ListOf, Mismatch, Nullable, Record, Text, checker
from dslc.base.words import reason
from dslc.runtime.data.entries.rows import FIRST
from dslc.runtime.data.entries.values import Converter
from dslc.runtime.data.file import open_file
from dslc.runtime.data.rows import AT_ONCE
from dslc.runtime.data.tables.lines import MOST_BAD

if TYPE_CHECKING:
    from dslc.runtime.data.source import Source

_END: Final = b"dslc rows 1\n"
_TAIL: Final = 8 + len(_END)  # bytes after the description: its length, and the mark
_MOST_TEXT: Final = 64 << 20  # bytes of a description
_MOST_FIELDS: Final = 1000
_PART: Final = 1 << 20  # bytes written or read at once
_TEXTS_AT_ONCE: Final = 64  # rows; those of pictures and texts hold a decoded picture each
_SAYS: Final = 5.0  # seconds between two lines about the progress
_LONGEST: Final = 200  # characters of a reason
_FORM: Final = checker(
    Record(
        {
            "count": Int(0, 2**60),
            "sha256": Text(64, r"[0-9a-f]{64}", "a digest"),
            "fields": ListOf(
                Record(
                    {
                        "dtype": Text(3, r"[|<](?:b1|[iu][1248]|f[248])", "a dtype"),
                        "shape": ListOf(Int(0, 2**60), most=64),
                        "classes": Nullable(ListOf(Text(256, r"(?s:.+)", "a class"), most=100_000)),
                    }
                ),
                most=_MOST_FIELDS,
                least=1,
            ),
            "errors": ListOf(ListOf(Text(_LONGEST, r"(?s:.*)", "a reason"), most=3, least=3), most=MOST_BAD),
        }
    )
)


def write(
    rows: Any,
    converters: Sequence[Converter],
    classes: Sequence[Sequence[str] | None],
    sink: Sink,
    notice: Callable[[str], None],
    place: str,
    total: int | None,
) -> None:
    """Convert and write all rows of an iterable. ``total``: their number, if it is known.

    Raises DataError R102 if none of the first rows fits the inputs, R101 for too many bad rows, R106 for no rows.
    """
    out = _Writer(converters, sink, place)
    said = time.monotonic()
    waiting: list[Any] = []
    for row in rows:
        fail("data.spool")
        waiting.append(row)
        if len(waiting) >= out.at_a_time:
            out.add(waiting)
            waiting = []
        if time.monotonic() - said >= _SAYS:
            said = time.monotonic()
            part = "" if not total else f" of {total:,}, {100 * out.count // total} %"
            notice(f"{place}: {out.count:,} rows{part} are stored")
    out.add(waiting)
    out.finish(classes)
    notice(f"{place}: {out.count:,} rows are stored in the cache")


class _Writer:
    """Waits for the first good value of each field, which says its dtype; then every row is a record."""

    def __init__(self, converters: Sequence[Converter], sink: Sink, place: str) -> None:
        self._converters = converters
        self._sink = sink
        self._place = place
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._first: list[list[NDArray[Any] | None]] = []
        self._errors: list[list[str]] = []
        self._known = False
        self.count = 0

    @property
    def at_a_time(self) -> int:
        """How many rows are best added by one call: several if they hold texts."""
        return _TEXTS_AT_ONCE if self._known and any(converter.of_texts for converter in self._converters) else 1

    def add(self, rows: Sequence[Any]) -> None:
        whole = [self._texts(converter, rows) for converter in self._converters]
        for at, row in enumerate(rows):
            self._add(row, [None if texts is None else texts[at] for texts in whole])

    def _texts(self, converter: Converter, rows: Sequence[Any]) -> NDArray[Any] | None:
        """The converted texts of rows, if all fit; None for other values."""
        if len(rows) > 1 and converter.of_texts:
            with suppress(ValueError):  # one by one, to find those that do not fit
                return converter.texts(rows)
        return None

    def _add(self, row: Any, converted: Sequence[NDArray[Any] | None]) -> None:
        found: list[NDArray[Any] | None] = []
        for number, (converter, value) in enumerate(zip(self._converters, converted)):
            try:
                found.append(converter.row(row) if value is None else value)
            except ValueError as error:
                found.append(None)
                self._errors.append([str(self.count), str(number), reason(error)[:_LONGEST]])
        self.count += 1
        if len(self._errors) > MOST_BAD:
            self._refuse("R101", f"more than {MOST_BAD} rows do not fit, such as row {self._said()}")
        if self._known:
            self._put(found)
            return
        self._first.append(found)
        self._known = all(converter.dtype is not None for converter in self._converters)
        if not self._known and self.count >= FIRST:
            self._refuse("R102", f"row {self._said()}")
        if self._known:
            for each in self._first:
                self._put(each)

    def _put(self, values: Sequence[NDArray[Any] | None]) -> None:
        for converter, value in zip(self._converters, values):
            self._buffer += (np.zeros(converter.shape, converter.dtype) if value is None else value).tobytes()
        if len(self._buffer) >= _PART:
            self._flush()

    def _flush(self) -> None:
        self._digest.update(self._buffer)
        self._sink.write(self._buffer)
        self._buffer = bytearray()

    def finish(self, classes: Sequence[Sequence[str] | None]) -> None:
        if self.count == 0:
            self._refuse("R106", "the dataset has no rows")
        if not self._known:
            self._refuse("R102", f"row {self._said()}")
        self._flush()
        fields = [
            {"dtype": np.dtype(c.dtype).str, "shape": list(c.shape), "classes": None if k is None else list(k)}
            for c, k in zip(self._converters, classes)
        ]
        text = canonical.dumps(
            {"count": self.count, "sha256": self._digest.hexdigest(), "fields": fields, "errors": self._errors}
        )
        self._sink.write(text + len(text).to_bytes(8, "little") + _END)

    def _said(self) -> str:
        row, _, why = self._errors[0]
        return f"{row}: {why}"

    def _refuse(self, code: str, cause: str) -> NoReturn:
        raise DataError(code, cause, place=self._place, help="change the input, the field, or the dataset")


class Stored:
    """A file that ``write`` has written."""

    def __init__(self, path: Path) -> None:
        """Raises DataError R101 for a damaged file."""
        self.path = path
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                said, start = _description(file.fileno(), size)
            except (ArtifactError, Mismatch, ValueError) as error:
                raise self._damaged(reason(error)) from error
            self._fields = said["fields"]
            record = np.dtype([(f"f{n}", f["dtype"], tuple(f["shape"])) for n, f in enumerate(self._fields)])
            self.count: int = said["count"]
            self.sha256: str = said["sha256"]
            self.errors = [(int(row), int(field), why) for row, field, why in said["errors"]]
            if start != self.count * record.itemsize:
                raise self._damaged(f"{self.count} rows of {record.itemsize} bytes are not {start}")
            self.records: NDArray[Any] = np.memmap(file, record, "r", shape=(self.count,))

    def classes(self, field: int) -> tuple[str, ...] | None:
        names = self._fields[field]["classes"]
        return None if names is None else tuple(names)

    def verify(self) -> None:
        """Compare the records with their digest. DataError R101."""
        digest = hashlib.sha256()
        flat = self.records.view(np.uint8)
        for start in range(0, len(flat), _PART):
            digest.update(flat[start : start + _PART].data)
        if digest.hexdigest() != self.sha256:
            raise self._damaged("its rows do not match their digest")

    def _damaged(self, why: str) -> DataError:
        help = "remove it, or clear the cache: dslc cache clear"
        return DataError(
            "R101", f"the stored rows of a dataset are damaged: {why[:200]}", place=str(self.path), help=help
        )


def _description(file: int, size: int) -> tuple[Any, int]:
    """What the end of a file says, and the number of bytes before it. ValueError, Mismatch or ArtifactError."""
    tail = os.pread(file, _TAIL, max(0, size - _TAIL))
    if len(tail) < _TAIL or tail[8:] != _END:
        raise ValueError("its end is missing")
    length = int.from_bytes(tail[:8], "little")
    start = size - _TAIL - length
    if start < 0 or length > _MOST_TEXT:
        raise ValueError(f"its description would have {length} bytes")
    said = canonical.loads(os.pread(file, length, start), place="the description", max_values=8 * MOST_BAD)
    _FORM(said)
    return said, start


class StoredRows:
    """One field of a stored dataset. ``bad``: the rows that did not fit, with place and reason."""

    def __init__(self, source: Source, field: int) -> None:
        stored = Stored(source.path)
        values = stored.records[f"f{field}"]
        self._values = values
        self.count, self.shape, self.dtype = stored.count, values.shape[1:], values.dtype
        self.bad = {row: (f"{source.name}, row {row}", why) for row, of, why in stored.errors if of == field}
        self.in_memory = values.nbytes <= AT_ONCE

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        found: NDArray[Any] = np.ascontiguousarray(self._values[rows])
        return found
