"""A format of data: how a name is recognised as one of its files, and how the rows of such a file are opened.

Each format is a class in a file of ``formats``, which calls ``register``. The folder is listed, so a new file needs no
entry elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.file import Accept, open_file
from dslc.runtime.data.rows import ArrayRows, Rows
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted


class Format(ABC):
    """A format, without state. No two formats match the same path.

    ``usage``: how a user names such data, for help. ``keyed``: the name ends in ``:KEY``, which selects data inside the
    file. ``windows``: keys of one file may give different numbers of rows, of which a run takes the smallest.
    """

    usage: ClassVar[str]
    keyed: ClassVar[bool] = False
    windows: ClassVar[bool] = False

    @abstractmethod
    def matches(self, path: str) -> bool:
        """True if the user's path, without the key, names data of this format. Opens nothing."""

    @abstractmethod
    def open(self, source: Source, wanted: Wanted) -> Rows:
        """The rows of one file. Raises DataError R101 for a damaged file, R102 if its rows do not fit ``wanted``."""

    def check_key(self, key: str) -> None:
        """Raises ValueError with the reason if data cannot have this key, "" if the user gave none."""
        if not key:
            raise ValueError("the name of the array inside the file is missing")

    def divided(self, text: str) -> tuple[str, str] | None:
        """The path and the key of a user's text that the format divides in its own way; None: at the last colon. Raises
        ValueError with the reason for a malformed text."""
        return None

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        """The source to read instead: a file that is made from the data once, before any row is read. Else itself."""
        return source

    def contents(self, source: Source) -> list[str] | None:
        """Texts that change with the data; None for data in files, which are compared themselves."""
        return None

    def decodes(self, source: Source) -> bool:
        """True if every row is a file of its own, whose decoder runs in a worker process because it may crash."""
        return False

    def row_names(self, source: Source) -> list[str] | None:
        """What a user calls each row of one file, e.g. the name of an image; None if only its number."""
        return None

    def class_names(self, source: Source) -> Sequence[str] | None:
        """The names of the classes whose indices the data are; None for data that are no labels."""
        return None

    def require(self, source: Source) -> None:
        """Raises DataError R101 if the data is missing; reads none of it."""
        with open_file(source.path):
            pass


class _Seen(Exception):
    """Ends the reading of an array whose shape is known."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.shape = shape


class ArrayFormat(Format):
    """A format whose files hold whole arrays: rows along axis 0, or an input without rows."""

    @abstractmethod
    def read(self, source: Source, accept: Accept | None = None) -> NDArray[Any]:
        """The array, read-only. ``accept`` gets its shape before its values are read, and raises to reject it."""

    def shape(self, source: Source) -> tuple[int, ...]:
        """The array's shape; reads no values."""

        def seen(shape: tuple[int, ...]) -> None:
            raise _Seen(shape)

        try:
            return self.read(source, seen).shape
        except _Seen as found:
            return found.shape

    def same_rows(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
        """True if a row of ``shape`` in the file is a row of the input."""
        return shape == wanted

    def open(self, source: Source, wanted: Wanted) -> Rows:
        def accept(shape: tuple[int, ...]) -> None:
            if not shape or not self.same_rows(shape[1:], wanted.shape):
                raise misshaped(source, wanted, shape, rows_of(wanted))

        return ArrayRows(self.read(source, accept))


def rows_of(wanted: Wanted) -> str:
    """The shape of an array of rows, for messages: ``[n, 28, 28]``."""
    return f"[{', '.join(map(str, ('n', *wanted.shape)))}] with any n"


def misshaped(source: Source, wanted: Wanted, shape: tuple[int, ...], expected: str) -> DataError:
    """The error for an array of the wrong shape."""
    cause = f"its shape is {list(shape)}, expected {expected}"
    place = f"{wanted.field}: {source.path} ({source.name})"
    return DataError("R102", cause, place=place, help=_other_shape(wanted, shape))


def _other_shape(wanted: Wanted, shape: tuple[int, ...]) -> str:
    """What to do with an array of rows of another shape."""
    row, more = shape[1:], shape[1 : 1 + len(wanted.shape)] == wanted.shape and len(shape) == 2 + len(wanted.shape)
    if more and shape[-1] == 1:
        return "it has one axis more: save numpy.squeeze(x, -1)"
    if more and wanted.tensor.dtype[0] in "iu":
        return "if it has a number for each class, save the greatest one's: numpy.argmax(x, -1)"
    if sorted(row) == sorted(wanted.shape):
        return "its axes have another order: save it again after numpy.transpose"
    if row and prod(row) == prod(wanted.shape):
        return "reshape it and save it again"
    return "save rows of that shape, or declare the input as the rows are"


def has_suffix(path: str, suffix: str) -> bool:
    """True if the last part of a path is a name followed by ``suffix``, in small or capital letters."""
    last = path.rpartition("/")[2].lower()
    return last.endswith(suffix) and len(last) > len(suffix)


_FORMATS: Final[list[Format]] = []
Registered = TypeVar("Registered", bound=Format)


def register(format: Registered) -> Registered:
    """Adds a format to the table; returns it."""
    _FORMATS.append(format)
    return format


def registered() -> tuple[Format, ...]:
    """The formats of the modules that have been imported."""
    return tuple(_FORMATS)
