"""The interface of a table: named columns of raw values, and the choice of columns by a source's key."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from dslc.base.errors import DataError
from dslc.runtime.data.text.texts import text_key
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dslc.runtime.data.columns.raw import Raw
    from dslc.runtime.data.source import Source

MOST_COLUMNS: Final = 100_000
_NUMBERED: Final = re.compile(r"\[[0-9]+\]\Z")
_CALL: Final = re.compile(r"([a-zA-Z_.]+)\((.+)\)\Z")


class Table(Protocol):
    """A file of rows. ``large``: reading it whole takes long, so that its rows are read when they are needed.

    ``doubles``: the columns that hold f64, whose rounding to f32 is reported.
    """

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def count(self) -> int: ...
    @property
    def large(self) -> bool: ...
    @property
    def doubles(self) -> frozenset[str]: ...

    def read(self, rows: NDArray[np.int64], columns: Sequence[int]) -> tuple[list[Raw], dict[int, str]]:
        """A raw column [len(rows)] for each of ``columns``, and why the row at a position cannot be read."""
        ...

    def close(self) -> None:
        """Release what reading needs; no row is read afterwards. May be repeated."""
        ...

    def place(self, row: int) -> str:
        """The file and, for text, the line of a row, for messages."""
        ...


def place_of(source: Source) -> str:
    return f"{source.path} ({source.name[:100]})"


def refuse_table(source: Source, why: str, help: str = "write it as CSV with one row per line") -> NoReturn:
    raise DataError("R101", f"it is not a table: {why}", place=place_of(source), help=help)


def row_of(shape: Sequence[int]) -> str:
    """What a row of an input is, for messages."""
    count = prod(shape)
    return f"a row of the input has {count} value{'' if count == 1 else 's'}: {list(shape)}"


def wrong_count(source: Source, names: Sequence[str], shape: tuple[int, ...]) -> DataError:
    """The DataError R102 for columns of one value each that do not fill a row of the input."""
    cause = f"it gives {len(names)} column{'' if len(names) == 1 else 's'}, {row_of(shape)}"
    help = "name that many columns: `table.csv:first..last`"
    if len(names) == 1 and len(shape) == 1:
        text = names[0][:60]
        help += f"; a text fills a row by `tokens({text})`, and `tokens.mask({text})` is its mask"
    return DataError("R102", cause, place=place_of(source), help=help)


def chosen(source: Source, names: Sequence[str]) -> list[int]:
    """The indices of the columns that the source's key names: ``a``, ``a,b``, ``first..last``, ``tokens(a)``; of a list
    ``emb``, its columns ``emb[0]`` and so on.
    DataError R101 for a name that occurs twice, R102 for a column that is missing."""
    key = source.key
    assert key is not None
    at = {name: number for number, name in enumerate(names)}
    found: list[int] = []
    if (text := text_key(key)) is not None:
        if text.column not in at:
            _absent(text.column, at, source)
        return _unique([at[text.column]], names, source)
    for part in [key] if key in at else _parts(key):
        low, dots, high = part.partition("..")
        if part in at or not dots:
            low = high = part
        ends = [_ends(name, at) or _absent(name, at, source) for name in (low, high)]
        found.extend(range(ends[0][0], ends[1][1] + 1))
    return _unique(found, names, source)


def _parts(key: str) -> list[str]:
    """The parts of a key between its commas; a name with a comma is in quotes, as in a CSV file."""
    try:
        return next(csv.reader([key]), [])
    except csv.Error:
        return key.split(",")


def _ends(name: str, at: Mapping[str, int]) -> tuple[int, int] | None:
    """The first and last column with a name, or of the list with it; None if there is none. ``at``: the number of each
    column."""
    if name in at:
        return at[name], at[name]
    first = at.get(f"{name}[0]")
    if first is None:
        return None
    last = first
    while at.get(f"{name}[{last + 1 - first}]") == last + 1:
        last += 1
    return first, last


def _unique(columns: list[int], names: Sequence[str], source: Source) -> list[int]:
    """The columns; raises DataError R101 if another column of the table has the name of one of them."""
    if len(set(names)) < len(names):
        counts = Counter(names)
        double = next((names[column] for column in columns if counts[names[column]] > 1), None)
        if double is not None:
            refuse_table(source, f"two columns are called `{double[:60]}`", "rename one of them in the file")
    return columns


def _absent(name: str, names: Mapping[str, int], source: Source) -> NoReturn:
    """Raise DataError R102 for a column that the table does not have."""
    whole = [*dict.fromkeys(_NUMBERED.sub("", each) for each in names)]  # a list instead of its columns
    close, call = nearest(name, whole), _CALL.match(name)
    there = ", ".join(f"`{each}`" for each in whole[:8])[:200]
    alone = len(names) == 1 and (not close or name in re.split(r"\W", close))  # a line of another separator
    close = None if alone else close
    help = f"did you mean `{close}`?" if close else f"it has {there or 'none'}"
    if alone:
        help += "; the first line of a CSV is its header, and between fields are commas, semicolons or tabs"
    if not close and not name.isdecimal() and [*names] == [str(at) for at in range(len(names))]:
        help = f"the first line is no header, because it holds numbers alone: columns are 0 to {len(names) - 1}"
    if name.isdecimal() and not close:
        help += "; columns have numbers only if the first line of a CSV holds numbers alone"
    if call is not None:
        mask = ".mask" if "mask" in call[1] else ""
        help = f"texts are read by tokens{mask}({call[2]}), or bytes{mask}({call[2]}) without a tokenizer"
    raise DataError("R102", f"there is no column `{name[:60]}`", place=place_of(source), help=help)
