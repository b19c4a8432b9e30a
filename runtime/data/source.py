"""Data in files: a path and the key of the data inside.

A path may contain ``*``, ``?`` and ``[...]``: then it denotes all matching files in sequence, sorted by name.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DataError

_MOST_FILES: Final = 10_000


@dataclass(frozen=True)
class Source:
    """Data in one or several files. ``name`` is the user's text; ``key`` selects data inside the file, if given.

    ``path`` may be a pattern until ``files`` has been called.
    """

    path: Path
    key: str | None
    name: str

    def as_data(self) -> dict[str, Any]:
        """The source as JSON data, for a worker."""
        return {"path": str(self.path), "key": self.key, "name": self.name}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Source:
        return cls(Path(data["path"]), data["key"], data["name"])


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
