"""Lists of numbers in a row of a table: as many columns, ``emb[0]`` to ``emb[n - 1]``; nested lists row by row.

The name of a list stands for all of its columns (``table.chosen``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from dslc.runtime.data.tables.table import MOST_COLUMNS


def columns_of(name: str, value: object) -> Iterator[str]:
    """The columns of a value: its name, or those of its numbers, if it is a list of nothing else."""
    shape = shape_of(value)
    if shape is None or not 0 < prod(shape) <= MOST_COLUMNS or not all(map(_is_number, flat(value))):
        yield name
    else:
        yield from (f"{name}[{at}]" for at in range(prod(shape)))


def shape_of(value: object) -> tuple[int, ...] | None:
    """The sizes of a list and of the lists in it; None for anything else, and for lists of different sizes."""
    if not isinstance(value, list):
        return None
    inner = [shape_of(each) for each in value]
    if all(not isinstance(each, list) for each in value):
        return (len(value),)
    first = inner[0]
    return None if first is None or any(each != first for each in inner) else (len(value), *first)


def flat(value: object) -> list[Any]:
    """The elements of nested lists, in order."""
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list) else [value]


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)
