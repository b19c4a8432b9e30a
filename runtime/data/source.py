"""Names of data in a configuration: ``digits.npz:train_x``, ``images.npy``, ``train-images-idx3-ubyte.gz``, and so on.

A path may contain ``*``, ``?`` and ``[...]``: then it denotes all matching files in sequence, sorted by name.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DataError

FORMS: Final = (
    "write `file.npz:key`, `file.npy`, `file.csv:columns`, `file.bin:u16`, an idx file (`train-images-idx3-ubyte.gz`, "
    "`file.idx`) or `folder/:image`"
)
_MOST_FILES: Final = 10_000
_IDX = re.compile(r"(?:.*[-.])?(?:idx|idx[0-9]-ubyte)(?:\.gz)?\Z", re.DOTALL)
_TOKENS = re.compile(r"(u16|u32)(?:/([1-9][0-9]{0,8}))?(?:\+([0-9]{1,9}))?\Z")


@dataclass(frozen=True)
class Source:
    """Data in one or several files. ``name`` is the user's text; ``key`` selects data inside the file, if given.

    ``path`` may be a pattern until ``files`` has been called.
    """

    path: Path
    key: str | None
    name: str

    @property
    def kind(self) -> str:
        """npz, npy, csv, bin, idx or folder. The name's form has been checked by ``split``."""
        kind = _kind(self.path.name)
        return "folder" if kind is None else kind

    def as_data(self) -> dict[str, Any]:
        """The source as JSON data, for a worker."""
        return {"path": str(self.path), "key": self.key, "name": self.name}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Source:
        return cls(Path(data["path"]), data["key"], data["name"])


@dataclass(frozen=True)
class Tokens:
    """The key of a ``.bin``: item dtype, distance between windows (None: the window's length), first token."""

    dtype: str
    stride: int | None
    shift: int


def split(text: str) -> tuple[str, str | None]:
    """The path and the key in a source's text. ValueError with the reason for an unknown form."""
    path, colon, key = text.rpartition(":")
    if not colon or (_kind(text) in ("npy", "idx") and _kind(path) is None and not path.endswith("/")):
        colon, path, key = "", text, ""
    if colon and path.endswith("/"):
        if key not in ("image", "label"):
            raise ValueError("a folder of images gives `image` and `label`")
        return path, key
    kind = _kind(path if colon else text)
    if kind in ("npy", "idx") and not colon:
        return text, None
    if kind in ("npz", "csv") and key:
        return path, key
    if kind == "bin" and key:
        tokens(key)
        return path, key
    if kind is None and not colon and _kind(text) is None:
        raise ValueError("this does not name any data")
    raise ValueError(
        "the name of the array inside the file is missing" if not key else "such a file has no names inside"
    )


def tokens(key: str) -> Tokens:
    """Parses ``u16``, ``u32+1``, ``u16/64+1``. ValueError for anything else."""
    found = _TOKENS.match(key)
    if found is None:
        raise ValueError("tokens are `u16` or `u32`, optionally followed by `/STRIDE` and `+SHIFT`")
    return Tokens(found[1], None if found[2] is None else int(found[2]), int(found[3] or 0))


def _kind(name: str) -> str | None:
    last = name.rpartition("/")[2]
    for kind in ("npz", "npy", "csv", "bin"):
        if last.endswith("." + kind) and len(last) > len(kind) + 1:
            return kind
    return "idx" if _IDX.match(last) else None


def files(source: Source, notice: Callable[[str], None], field: str) -> list[Source]:
    """One source per file: the files that match the pattern, sorted by name. R101 if none matches."""
    text = str(source.path)
    if source.path.exists() or not glob.has_magic(text):
        return [source]
    found = sorted(glob.iglob(text))
    if not found or len(found) > _MOST_FILES:
        cause = f"{len(found)} files match" if found else "no file matches"
        raise DataError("R101", cause, place=text, help="check the pattern; it is relative to dslc.yaml's folder")
    inner = "" if source.key is None else f":{source.key}"
    notice(f"{field}: {len(found)} files, {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else ""))
    return [Source(Path(path), source.key, Path(path).name + inner) for path in found]
