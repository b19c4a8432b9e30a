"""A JSON lines file as a table: one object per line, whose values are numbers, texts, truths, null or lists of
numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.json_size import too_large
from dslc.runtime.data.columns.raw import Raw, raw_objects
from dslc.runtime.data.rows import AT_ONCE
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables import nested
from dslc.runtime.data.tables.advice import help_for_head, said
from dslc.runtime.data.tables.lines import Lines
from dslc.runtime.data.tables.table import MOST_COLUMNS, refuse_table

_SAMPLED: Final = 100  # lines that name the columns: a line may lack one
_MOST_VALUES: Final = 2 * MOST_COLUMNS  # of a line, counted as in json_size
_DEPTH: Final = 8
_SHORT: Final = 4096  # bytes
_LONGEST_INTEGER: Final = 400  # digits; f64 reaches 309
_HELP: Final = "write one JSON object per line: json.dumps(row) for each row"


class JsonTable:
    """A key that a line lacks is a missing value, as null is."""

    doubles: frozenset[str] = frozenset()

    def __init__(self, source: Source) -> None:
        """Raises DataError R101 for a file that is not a table."""
        self._lines = Lines(source.path, partial(refuse_table, source, help=_HELP))
        if not self._lines.size:
            refuse_table(source, "the file is empty", _HELP)
        self._lines.index(2, header=False)
        self.count = self._lines.count
        self.large = self._lines.size > AT_ONCE
        records: list[dict[str, Any]] = []
        for row in range(min(self.count, _SAMPLED)):
            try:
                records.append(record_of(self._lines.line(row), first=row == 0))
            except ValueError as error:
                if row == 0:
                    line = self._lines.line(0)
                    why, help = _fault(line, said(error))
                    encoded = isinstance(error, UnicodeDecodeError)
                    refuse_table(source, f"line 1: {why}", help_for_head(error, source.path, line) if encoded else help)
        first: dict[str, Any] = {}
        for record in records:
            first |= {name: value for name, value in record.items() if first.get(name) is None}
        self._shapes = {name: nested.shape_of(value) for name, value in first.items()}
        found = [(name, list(nested.columns_of(name, value))) for name, value in first.items()]
        self.names: Sequence[str] = [column for _, columns in found for column in columns]
        self._is_list = {name: columns != [name] for name, columns in found}
        self._places = [
            (name, at if self._is_list[name] else None) for name, columns in found for at in range(len(columns))
        ]

    def close(self) -> None:
        pass

    def place(self, row: int) -> str:
        return self._lines.place(row)

    def read(self, rows: NDArray[np.int64], columns: Sequence[int]) -> tuple[list[Raw], dict[int, str]]:
        places, errors = [self._places[column] for column in columns], dict[int, str]()
        keys = dict.fromkeys(key for key, _ in places)
        values: list[list[Any]] = [[] for _ in places]
        for at, row in enumerate(rows.tolist()):
            record: dict[str, Any] = {}
            try:
                record = record_of(self._lines.line(row), first=row == 0)
            except ValueError as error:
                errors[at] = said(error)
            lists = {key: self._list(key, record.get(key), errors, at) for key in keys if self._is_list[key]}
            for found, (key, place) in zip(values, places):
                value = record.get(key) if place is None else lists[key][place]
                if isinstance(value, list | dict):
                    errors[at], value = f"`{key[:60]}` is a list or an object, not one value", None
                found.append(value)
        return [raw_objects(found) for found in values], errors

    def _list(self, key: str, value: object, errors: dict[int, str], at: int) -> list[Any]:
        """The numbers of a list in a row, all missing if there is none or another one."""
        shape = self._shapes[key]
        assert shape is not None
        if value is not None and nested.shape_of(value) == shape:
            return nested.flat(value)
        if value is not None:
            here = nested.shape_of(value)
            kind = f"a list of shape {list(here)}" if here else "no list of lists of one length"
            errors[at] = f"`{key[:60]}` is {kind}; that of the first line has the shape {list(shape)}"
        return [None] * prod(shape)


def record_of(line: bytes, *, first: bool) -> dict[str, Any]:
    """The object of a line. ValueError with the reason for anything else."""
    # A short line has few values, and the parser bounds its depth.
    rule = too_large(line, values=_MOST_VALUES, depth=_DEPTH) if len(line) > _SHORT else None
    if rule is not None:
        raise ValueError(rule)
    try:
        record = _DECODER.decode(line.decode("utf-8-sig" if first else "utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    return record


def _fault(line: bytes, why: str) -> tuple[str, str]:
    """Why a first line is no record, and what to do: many programs write one list, or indent objects."""
    text = line.strip().removeprefix(b"\xef\xbb\xbf")
    if not why.startswith("it is not"):
        return why, _HELP
    if text.startswith(b"["):
        return "the file is one list, not one object per line", f"{_HELP}; or jq -c '.[]' old.json > new.jsonl"
    if text == b"{":
        return "an object is written over several lines", f"{_HELP}; or jq -c . old.json > new.jsonl"
    return why, _HELP


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(f"an integer has {len(digits)} digits, more than {_LONGEST_INTEGER}")
    return int(digits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number" + ("; a gap is `null`" if word == "NaN" else ""))


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer, parse_constant=_constant)
