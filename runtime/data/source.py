"""Data in files: a path and the key of the data inside.

A path may contain ``*``, ``?`` and ``[...]``: then it denotes all matching files in sequence, sorted by name.
``{000..099}`` in it denotes a numbered set, each of which must exist.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DataError

ENTRY: Final = "entry:"  # begins the name of a dataset of a Python package, which is no file
_MOST_FILES: Final = 10_000
_BRACES = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")


@dataclass(frozen=True)
class Source:
    """Data in one or several files. ``name`` is the user's text; ``key`` selects data inside the file, if given.

    ``path`` may be a pattern until ``files`` has been called. ``like``: a folder of images whose order the files of
    this one follow.
    """

    path: Path
    key: str | None
    name: str
    like: Path | None = None

    def as_data(self) -> dict[str, Any]:
        """The source as JSON data, for a worker."""
        like = None if self.like is None else str(self.like)
        return {"path": str(self.path), "key": self.key, "name": self.name, "like": like}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Source:
        like = None if data["like"] is None else Path(data["like"])
        return cls(Path(data["path"]), data["key"], data["name"], like)


def _expanded(text: str) -> list[str]:
    """``shard-{000..099}.tar`` as a hundred paths, in order; any other text as itself. R101 for too many."""
    found = [text]
    while match := _BRACES.search(found[0]):
        low, high = int(match[1]), int(match[2])
        count = len(found) * (high - low + 1)
        if not 0 < count <= _MOST_FILES:
            cause = f"`{match[0][:60]}` makes {max(0, count)} paths, expected 1 to {_MOST_FILES}"
            raise DataError("R101", cause, place=text, help="write for example shard-{000..099}.tar")
        width = len(match[1]) if match[1].startswith("0") else 0
        numbers = [f"{number:0{width}}" for number in range(low, high + 1)]
        found = [_BRACES.sub(number, each, count=1) for each in found for number in numbers]
    return found


def files(source: Source, notice: Callable[[str], None], field: str) -> list[Source]:
    """One source per file: the files that match the pattern, sorted by name. R101 if none matches."""
    text = str(source.path)
    if source.path.name.startswith(ENTRY) or source.path.exists() or not (glob.has_magic(text) or _BRACES.search(text)):
        return [source]
    patterns = _expanded(text)
    if len(patterns) == 1:
        found = sorted(glob.iglob(patterns[0]))
    else:  # each part of a numbered set must be there
        found = [path for each in patterns for path in (sorted(glob.iglob(each)) if glob.has_magic(each) else [each])]
    if not found or len(found) > _MOST_FILES:
        cause = f"{len(found)} files match" if found else "no file matches"
        raise DataError("R101", cause, place=text, help="check the pattern; it is relative to dslc.yaml's folder")
    inner = "" if source.key is None else f":{source.key}"
    notice(f"{field}: {len(found)} files, {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else ""))
    return [Source(Path(path), source.key, Path(path).name + inner) for path in found]
