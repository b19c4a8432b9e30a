"""The value of one member of a sample: an integer, an array, a field of JSON, a text as tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.fit import exact_integers
from dslc.runtime.data.formats.arrays import array_of_bytes
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.json_table import record_of
from dslc.runtime.data.text.texts import LONGEST, TextKey, TextRefused, encoder_for, text_key

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted

_PICTURES: Final = ("jpg", "jpeg", "png", "bmp", "webp")
#: WebDataset's suffixes for integers.
_INTEGERS: Final = ("cls", "cls2", "class", "count", "index", "inx", "id")
_INTEGER = re.compile(rb"\s*([-+]?[0-9]{1,18})\s*\Z")
_KEY = re.compile(r"((?:[^.:/]+\.)*?json)\.(.+)\Z", re.DOTALL)


class Reader(Protocol):
    """Reads members of one kind. ``dtype`` of a row; ``most`` bytes of a member."""

    dtype: np.dtype[Any]
    most: int

    def read(self, data: bytes) -> NDArray[Any]:
        """A row. Raises ValueError for a member that is damaged or does not fit."""
        ...


class _Integer:
    dtype = np.dtype(np.int64)
    most = 64

    def __init__(self, source: Source, wanted: Wanted) -> None:
        if wanted.shape:
            _misfit(source, wanted, "an integer fills one value")

    def read(self, data: bytes) -> NDArray[Any]:
        match = _INTEGER.match(data)
        if match is None:
            raise ValueError(f"{data[:40]!a} is not an integer")
        return np.array(int(match[1]), np.int64)


class _Array:
    """An ``.npy``; all rows have the dtype of the first."""

    def __init__(self, source: Source, wanted: Wanted, first: bytes | None) -> None:
        self._source, self._shape = source, wanted.shape
        self.most = 4096 + 16 * int(np.prod(wanted.shape, dtype=np.float64).clip(1, 1 << 40))
        self.dtype = numpy_dtype(wanted.tensor.dtype)
        try:
            found = None if first is None else array_of_bytes(first, source, lambda shape: None)
        except DataError:
            return  # a bad sample, which is reported when it is read
        if found is not None:
            self.dtype = found.dtype
            if found.shape != wanted.shape:
                _misfit(source, wanted, f"the array of the first sample is {list(found.shape)}")

    def read(self, data: bytes) -> NDArray[Any]:
        try:
            found = array_of_bytes(data, self._source, self._accept)
        except DataError as error:
            raise ValueError(error.message) from error
        if found.dtype != self.dtype:
            raise ValueError(f"its values are {found.dtype.name}, those of the first sample {self.dtype.name}")
        return found

    def _accept(self, shape: tuple[int, ...]) -> None:
        if shape != self._shape:
            raise ValueError(f"its shape is {list(shape)}, expected {list(self._shape)}")


class _Json:
    """A field of an object: a number, or lists of numbers in the shape of a row."""

    most = 1 << 20

    def __init__(self, field: str, wanted: Wanted) -> None:
        target = numpy_dtype(wanted.tensor.dtype)
        self.dtype = target if target.kind == "f" else np.dtype(np.int64)
        self._field, self._shape = field, wanted.shape
        self._kinds: tuple[type, ...] = (
            (int, float) if target.kind == "f" else (int, bool) if target.kind == "b" else (int,)
        )

    def read(self, data: bytes) -> NDArray[Any]:
        value: Any = record_of(data, first=True)
        for name in self._field.split("."):
            if not isinstance(value, dict) or name not in value:
                raise ValueError(f"it has no field `{self._field[:60]}`")
            value = value[name]
        flat: list[Any] = []
        self._flatten(value, self._shape, flat)
        try:
            return np.array(flat, self.dtype).reshape(self._shape)
        except OverflowError as error:
            raise ValueError("a value does not fit 64 bits") from error

    def _flatten(self, value: Any, shape: tuple[int, ...], flat: list[Any]) -> None:
        if not shape:
            if not isinstance(value, self._kinds) or (isinstance(value, bool) and bool not in self._kinds):
                kind = "a number" if self.dtype.kind == "f" else "an integer"
                raise ValueError(f"`{self._field[:60]}` is {str(value)[:40]!r}, not {kind}")
            if self.dtype.kind == "f" and isinstance(value, int) and abs(value) > (most := exact_integers(self.dtype)):
                raise ValueError(
                    f"`{self._field[:60]}` is {str(value)[:40]}: {self.dtype.name} holds integers exactly up to {most}"
                )
            flat.append(value)
            return
        if not isinstance(value, list) or len(value) != shape[0]:
            raise ValueError(f"`{self._field[:60]}` does not have the shape {list(self._shape)}")
        for each in value:
            self._flatten(each, shape[1:], flat)


class Words:
    """A text as tokens, bytes or a mask, cut or filled to the length of a row."""

    most = LONGEST

    def __init__(self, source: Source, wanted: Wanted, key: TextKey) -> None:
        self._encoder = encoder_for(key, wanted, source)
        self.dtype = self._encoder.dtype

    def read(self, data: bytes) -> NDArray[Any]:
        row: NDArray[Any] = self.read_all([data])[0]
        return row

    def read_all(self, members: Sequence[bytes]) -> NDArray[Any]:
        """A row of each member, by one call of the tokenizer. ValueError if one is damaged."""
        try:
            return self._encoder.encode([data.decode("utf-8") for data in members])
        except TextRefused as error:
            raise ValueError(error.message) from error


def _misfit(source: Source, wanted: Wanted, why: str) -> None:
    cause = f"a row of this input is {list(wanted.shape)}, but {why}"
    place = f"{wanted.field}: {source.path} ({source.name})"
    raise DataError("R102", cause, place=place, help="name a member that holds such rows")


def member_of(key: str) -> str:
    """The suffix of the members that a key reads, in small letters. ValueError for a key that nothing reads."""
    suffix, kind, _ = _split(key)
    if kind not in (*_PICTURES, *_INTEGERS, "npy", "json", "txt"):
        known = ", ".join((*_PICTURES, "cls", "npy", "txt"))
        raise ValueError(f"members .{kind[:40]} are not read; known are {known} and json.FIELD")
    if text_key(key) is not None and kind != "txt":
        raise ValueError(f"texts are members .txt, not .{kind[:40]}: `tokens(txt)`")
    if kind == "json" and _KEY.match(key) is None:
        raise ValueError("name a field of the JSON object: `json.label`")
    return suffix


def is_picture(key: str) -> bool:
    return _split(key)[1] in _PICTURES


def needs_tokenizer(key: str) -> bool:
    return _split(key)[1] == "txt" and (text_key(key) or TextKey("txt")).tokens


def reader_of(source: Source, wanted: Wanted, first: Callable[[int], bytes | None]) -> Reader:
    """The reader for a source's key, which is not one of pictures. ``first`` gives the first member, if it has at most
    so many bytes.

    Raises DataError R102 if such values never fit the input."""
    assert source.key is not None
    key = source.key
    _, kind, rest = _split(key)
    makers: dict[str, Callable[[], Reader]] = {
        "npy": lambda: _Array(source, wanted, first(1 << 30)),
        "json": lambda: _Json(rest, wanted),
        "txt": lambda: Words(source, wanted, text_key(key) or TextKey(key)),
    }
    return makers.get(kind, partial(_Integer, source, wanted))()


def _split(key: str) -> tuple[str, str, str]:
    """Suffix, kind, and the field of a JSON object."""
    text = text_key(key)
    match = _KEY.match(key) if text is None else None
    if match is not None:
        return match[1].lower(), "json", match[2]
    suffix = (key if text is None else text.column).lower()
    return suffix, suffix.rpartition(".")[2], ""
