"""The members of a shard with one suffix, as rows by number."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.file import open_file
from dslc.runtime.data.picture_headers import HEAD, fault
from dslc.runtime.data.pictures import LARGEST_FILE, Choose, Pictures
from dslc.runtime.data.rows import AT_ONCE, BadSample, ChooseOf
from dslc.runtime.data.shards.headers import BLOCK
from dslc.runtime.data.shards.index import identity_of, index_of
from dslc.runtime.data.shards.values import Words, member_of, reader_of
from dslc.runtime.data.source import Source
from dslc.runtime.data.text.texts import AT_A_TIME
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted

_MISSING: Final = -1


class ShardRows:
    """Row i is the member of sample i; ``ShardPictures`` reads pictures. ``bad``: the samples that lack it, and the
    members found damaged on opening."""

    pictures = False

    def __init__(self, source: Source, wanted: Wanted) -> None:
        """Raises DataError R101 for a damaged shard, R102 if no sample has such a member or its values never fit."""
        assert source.key is not None
        self._path = source.path
        suffix, index = member_of(source.key), index_of(source.path)
        self._identity, self.count = index.identity, index.samples
        if suffix not in index.places:
            close = nearest(suffix, index.places)
            known = ", ".join(sorted(index.places)[:8])[:200] or "no member with a suffix"
            help = f"did you mean `{close}`?" if close else f"it has {known}"
            place = f"{wanted.field}: {source.path} ({source.name})"
            raise DataError("R102", f"no sample has a member .{suffix[:60]}", place=place, help=help)
        samples, starts, sizes = index.places[suffix]
        self._starts = np.full(self.count, _MISSING, np.int64)
        self._sizes = np.zeros(self.count, np.int64)
        self._starts[samples], self._sizes[samples] = starts, sizes
        self.shape = wanted.shape
        self._open(source, wanted, int(samples[0]))
        lacking = np.flatnonzero(self._starts == _MISSING).tolist()
        self.bad: dict[int, tuple[str, str]] = {row: (self._place(row), f"it has no .{suffix}") for row in lacking}
        row = max(1, int(np.prod(self.shape, dtype=np.float64)) * self.dtype.itemsize)
        self.in_memory = not self.pictures and max(int(sizes.sum()), self.count * row) <= AT_ONCE
        self._values: NDArray[Any] | None = None
        if self.in_memory:
            self._values = self._all()

    def _open(self, source: Source, wanted: Wanted, first: int) -> None:
        """Prepare to read; sets ``dtype``. ``first``: the first sample that has the member."""
        self._reader = reader_of(source, wanted, lambda most: self._bytes_of_first(first, most))
        self.dtype = self._reader.dtype

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        self._refuse_bad(rows)
        if self._values is not None:
            found: NDArray[Any] = self._values[rows]
            return found
        with open_file(self._path) as file:
            fd = self._checked(file.fileno())
            texts = self._texts(fd, rows.tolist())
            if texts is not None:
                return texts
            found = np.empty((len(rows), *self.shape), self.dtype)
            for at, row in enumerate(rows.tolist()):
                found[at] = self._member(fd, row)
        return found

    def _refuse_bad(self, rows: NDArray[np.int64]) -> None:
        for row in rows.tolist() if self.bad else ():
            if row in self.bad:
                raise BadSample(row, *self.bad[row])

    def _all(self) -> NDArray[Any]:
        found = np.zeros((self.count, *self.shape), self.dtype)
        with open_file(self._path) as file:
            fd = self._checked(file.fileno())
            there = [row for row in range(self.count) if row not in self.bad]
            for start in range(0, len(there), AT_A_TIME):
                part = there[start : start + AT_A_TIME]
                texts = self._texts(fd, part)
                if texts is not None:
                    found[part] = texts
                    continue
                for row in part:
                    try:
                        found[row] = self._member(fd, row)
                    except BadSample as bad:
                        self.bad[row] = (bad.place, bad.why)
        return found

    def _texts(self, fd: int, rows: Sequence[int]) -> NDArray[Any] | None:
        """The values of rows that are texts, by one call of the tokenizer; None if one is damaged, or for others."""
        if isinstance(self._reader, Words):
            with suppress(ValueError):
                return self._reader.read_all([self._bytes(fd, row, self._reader.most) for row in rows])
        return None

    def _member(self, fd: int, row: int) -> NDArray[Any]:
        try:
            return self._reader.read(self._bytes(fd, row, self._reader.most))
        except ValueError as error:
            raise BadSample(row, self._place(row), str(error)) from error

    def _bytes(self, fd: int, row: int, most: int) -> bytes:
        size = int(self._sizes[row])
        if size > most:
            raise ValueError(f"it has {size} bytes, more than {most}")
        return os.pread(fd, size, int(self._starts[row]))

    def _bytes_of_first(self, row: int, most: int) -> bytes | None:
        size = int(self._sizes[row])
        if size > most:
            return None
        with open_file(self._path) as file:
            return os.pread(file.fileno(), size, int(self._starts[row]))

    def _checked(self, fd: int) -> int:
        if identity_of(fd) != self._identity:
            help = "start the run again; do not write to data that a run reads"
            raise DataError("R101", "it was changed while a run reads it", place=str(self._path), help=help)
        return fd

    def _place(self, row: int) -> str:
        """The shard, the number of the sample, and the name of its member as its header shows it."""
        start = int(self._starts[row])
        if start == _MISSING:
            return f"{self._path}, sample {row}"
        with open_file(self._path) as file:
            name = os.pread(file.fileno(), 100, start - BLOCK).split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
        return f"{self._path}, sample {row} ({name})"


class ShardPictures(ShardRows):
    """The decoded pictures of a shard, u8 in the layout of the input, as those of a folder."""

    pictures = True

    def _open(self, source: Source, wanted: Wanted, first: int) -> None:
        try:
            self._pictures = Pictures(wanted.shape, wanted.pictures)
        except ValueError as error:
            help = "declare it as [B, 3, H, W] or [B, H, W, 3]; 1 and 4 channels work as well"
            raise DataError("R102", str(error), place=f"{source.path} ({source.name})", help=help) from error
        self.dtype = np.dtype(np.uint8)

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.read_windows(rows, None)

    def read_windows(self, rows: NDArray[np.int64], choose: ChooseOf | None) -> NDArray[Any]:
        self._refuse_bad(rows)
        found = np.empty((len(rows), *self.shape), np.uint8)
        with open_file(self._path) as file:
            fd = self._checked(file.fileno())
            for at, row in enumerate(rows.tolist()):
                found[at] = self._picture(fd, row, None if choose is None else partial(choose, at))
        return found

    def faults(self, notice: Callable[[str], None], what: str) -> Mapping[int, tuple[str, str]]:
        found = {}
        with open_file(self._path) as file:
            fd = self._checked(file.fileno())
            for row in np.flatnonzero(self._starts != _MISSING).tolist():
                size, start = int(self._sizes[row]), int(self._starts[row])
                why = fault(os.pread(fd, min(size, HEAD), start), size)
                if why is not None:
                    found[row] = (self._place(row), why)
        return found

    def _picture(self, fd: int, row: int, choose: Choose | None) -> NDArray[np.uint8]:
        try:
            return self._pictures.read(self._bytes(fd, row, LARGEST_FILE), row, "", choose)
        except ValueError as error:
            raise BadSample(row, self._place(row), str(error)) from error
        except BadSample as bad:
            raise BadSample(row, self._place(row), bad.why) from bad
