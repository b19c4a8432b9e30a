"""Tokens in a ``.bin`` file: only little-endian u16 or u32, one text after the other.

Row i is a window: the ``T`` tokens from ``shift + i * stride``. A language model reads the same file twice,
``corpus.bin:u16`` for its input and ``corpus.bin:u16+1`` for the tokens that follow. The file is mapped read-only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.file import open_file
from dslc.runtime.data.format import Format, has_suffix, register
from dslc.runtime.data.rows import AT_ONCE, Rows
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted

_KEY = re.compile(r"(u8|u16|u32|bytes|tokens)(?:/([1-9][0-9]{0,8}))?(?:\+([0-9]{1,9}))?(?:-([0-9]{1,9}))?\Z")
_ITEMS: Final[dict[str, np.dtype[Any]]] = {
    "u8": np.dtype("u1"),
    "bytes": np.dtype("u1"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
}


@dataclass(frozen=True)
class Tokens:
    """The key of a ``.bin`` or ``.txt``: the kind of items, the distance between windows (None: the window's length),
    the first token, and how many tokens at the end are left out."""

    dtype: str
    stride: int | None
    shift: int
    left: int = 0

    def __str__(self) -> str:
        return f"{self.dtype}{'' if self.stride is None else f'/{self.stride}'}+{self.shift}-{self.left}"


def check_windows(key: str, kinds: Sequence[str]) -> None:
    """Raises ValueError for a key that a user cannot write: a kind that is not in ``kinds``, or tokens left out."""
    found = _KEY.match(key)
    if found is None or found[1] not in kinds or found[4] is not None:
        what = "a table is called .csv or .tsv" if "tokens" in kinds else "save other numbers by numpy.save"
        raise ValueError(f"tokens are `{'` or `'.join(kinds)}`, optionally followed by `/STRIDE` and `+SHIFT`; {what}")


def tokens(key: str) -> Tokens:
    """Parses ``u16``, ``u32+1``, ``bytes/64+1-3``. ValueError for anything else."""
    found = _KEY.match(key)
    if found is None:
        raise ValueError(f"{key[:40]!r} is no key of tokens")
    return Tokens(found[1], None if found[2] is None else int(found[2]), int(found[3] or 0), int(found[4] or 0))


class TokenRows:
    """Windows of a file of tokens."""

    def __init__(self, source: Source, shape: tuple[int, ...]) -> None:
        """``shape`` is that of one row, [T]. Raises DataError R101, R102 (the input is not a window), R106 (too
        short)."""
        assert source.key is not None
        place = f"{source.path} ({source.name})"
        key = tokens(source.key)
        if len(shape) != 1 or shape[0] < 1:
            cause = f"a row of this input is {list(shape)}, but tokens come in windows [T]"
            raise DataError("R102", cause, place=place, help="declare the input as `i32[B, T]`")
        item = _ITEMS[key.dtype]
        with open_file(source.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size % item.itemsize:
                cause = f"its {size} bytes are not a multiple of the size of {key.dtype}"
                raise DataError("R101", cause, place=place, help="write it again with numpy's tofile")
            self._tokens = np.memmap(file, item, "r") if size else np.empty(0, item)
        self._shift = key.shift
        self._stride = shape[0] if key.stride is None else key.stride
        self.shape = shape
        self.dtype = item
        self.count = max(0, (len(self._tokens) - key.shift - key.left - shape[0]) // self._stride + 1)
        if self.count == 0:
            cause = f"its {len(self._tokens)} tokens do not fill one window of {shape[0]}"
            raise DataError("R106", cause, place=place, help="use a longer text or a shorter window")
        self.in_memory = size <= AT_ONCE

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        windows = sliding_window_view(self._tokens, self.shape[0])
        found: NDArray[Any] = windows[self._shift + rows * self._stride]
        return found


class Bin(Format):
    """``corpus.bin:u16``."""

    usage = "`file.bin:u16`"
    keyed = True
    windows = True

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".bin")

    def check_key(self, key: str) -> None:
        check_windows(key, ("u16", "u32"))

    def open(self, source: Source, wanted: Wanted) -> Rows:
        return TokenRows(source, wanted.shape)


register(Bin())
