"""Values of a dataset's rows as rows of an input: numbers, pictures, texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.words import reason
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.file import open_file
from dslc.runtime.data.fit import exact_integers
from dslc.runtime.data.pictures import Pictures
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.text.texts import TextRefused, encoder_for, problem, text_key

if TYPE_CHECKING:
    from dslc.runtime.data.source import Source
    from dslc.runtime.data.wanted import Wanted

_LARGEST_FILE: Final = 64 << 20  # bytes of a picture


@dataclass(frozen=True)
class Broken:
    """A row that the dataset could not give."""

    why: str


def field_of(row: Any, field: str | None) -> Any:
    """The value of a row's field: a key of a mapping, a name or an index of a tuple. ValueError if it has none."""
    if isinstance(row, Broken):
        raise ValueError(row.why)
    if field is None:
        return row
    if isinstance(row, Mapping):
        if field not in row:
            known = ", ".join(map(str, list(row)[:8]))[:200]
            raise ValueError(f"a row has no field `{field[:60]}`; it has {known or 'none'}")
        return row[field]
    if isinstance(row, tuple | list):
        names = getattr(row, "_fields", ())
        at = names.index(field) if field in names else int(field) if field.isdecimal() else len(row)
        if at < len(row):
            return row[at]
        raise ValueError(f"a row has no field `{field[:60]}`; it has {len(row)}, which count from 0")
    raise ValueError(f"a row is a {type(row).__name__}, which has no field `{field[:60]}`; return a dict or a tuple")


class Converter:
    """Converts the values of one field. ``dtype`` is that of the first value, once ``row`` has converted it."""

    def __init__(self, wanted: Wanted, source: Source, field: str | None) -> None:
        """``field`` may be one of ``texts.TextKey``. Raises DataError R101, R102, R104."""
        text = None if field is None else text_key(field)
        self.field = field if text is None else text.column
        self.shape = wanted.shape
        self._wanted = wanted
        self._target = numpy_dtype(wanted.tensor.dtype)
        self._float = self._target.kind == "f"
        self._exact = exact_integers(self._target) if self._float else 0
        self._text = None if text is None else encoder_for(text, wanted, source)
        self._pictures: Pictures | None = None
        self.dtype: np.dtype[Any] | None = None if self._text is None else self._text.dtype

    def row(self, row: Any) -> NDArray[Any]:
        """The field of a row, in the shape of an input's row. ValueError with the reason for one that does not fit."""
        if self._text is not None:
            found: NDArray[Any] = self.texts([row])[0]
            return found
        value = field_of(row, self.field)
        encoded = _encoded_picture(value)
        if encoded is not None or _is_picture(value):
            return self._picture(value, encoded)
        return self._numbers(value)

    @property
    def of_texts(self) -> bool:
        """True if ``texts`` converts the field."""
        return self._text is not None

    def texts(self, rows: Sequence[Any]) -> NDArray[Any]:
        """The texts of rows, by one call of the tokenizer. ValueError with a reason if one does not fit."""
        assert self._text is not None
        texts = [self._text_of(row) for row in rows]
        try:
            return self._text.encode(texts)
        except TextRefused as error:
            raise ValueError(error.message) from error

    def _text_of(self, row: Any) -> str:
        value = field_of(row, self.field)
        why = None if value is None else problem(value)
        if why is not None:
            raise ValueError(why)
        return "" if value is None else str(value)

    def _picture(self, value: Any, encoded: bytes | None) -> NDArray[Any]:
        if self._pictures is None:
            self._pictures = Pictures(self.shape, self._wanted.pictures)
        try:
            found = self._pictures.of_image(value) if encoded is None else self._pictures.read(encoded, 0, "")
        except BadSample as bad:
            raise ValueError(bad.why) from bad
        return self._typed(found)

    def _numbers(self, value: Any) -> NDArray[Any]:
        if isinstance(value, str | bytes):
            raise ValueError(f"{value[:40]!r} is a text; name `tokens({self.field})` or `bytes({self.field})`")
        try:
            array = np.asarray(value)
        except Exception as error:  # what a value of another library raises is not known
            raise ValueError(f"a {type(value).__name__} is no array: {reason(error)}") from error
        if array.dtype.kind not in "fiub":
            raise ValueError(f"a value of type {type(value).__name__} is no array of numbers")
        if array.shape != self.shape:
            if [size for size in array.shape if size != 1] != [size for size in self.shape if size != 1]:
                raise ValueError(f"its shape is {list(array.shape)}, expected {list(self.shape)}")
            array = array.reshape(self.shape)
        if self._float and not hasattr(value, "dtype") and array.dtype.kind in "iu":
            if array.size and max(-int(array.min()), int(array.max())) > self._exact:
                raise ValueError(
                    f"{self._target.name} holds integers exactly up to {self._exact}: declare it as integers"
                )
            array = array.astype(np.float64)  # of Python's numbers, 2 may follow on 1.5
        return self._typed(array)

    def _typed(self, array: NDArray[Any]) -> NDArray[Any]:
        if self.dtype is None:
            self.dtype = array.dtype.newbyteorder("<")
        if not np.can_cast(array.dtype, self.dtype, "safe"):
            raise ValueError(f"its values are {array.dtype.name}, those of the first row {self.dtype.name}")
        return array.astype(self.dtype, copy=False)


def _is_picture(value: Any) -> bool:
    """True for an image of pillow, which is not imported for this."""
    return any(kind.__module__.startswith("PIL.") for kind in type(value).__mro__)


def _encoded_picture(value: Any) -> bytes | None:
    """The bytes of a picture that is not decoded: ``bytes``, or a dict with them or with the path of a file, as Hugging
    Face's ``Image`` gives. ValueError for a file that cannot be read."""
    if isinstance(value, Mapping) and {*value} == {"bytes", "path"}:
        return value["bytes"] if isinstance(value["bytes"], bytes) else _file(Path(str(value["path"])))
    return value if isinstance(value, bytes) else None


def _file(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            data = file.read(_LARGEST_FILE + 1)
    except DataError as error:
        raise ValueError(f"{path}: {error.message}") from error
    if len(data) > _LARGEST_FILE:
        raise ValueError(f"{path} has more than {_LARGEST_FILE} bytes")
    return data
