"""Words for people: amounts with three digits and a unit, what libraries say, what a path or a percentage meant."""

from __future__ import annotations

import json
import os
import re
from itertools import islice
from pathlib import Path
from typing import Final

#: What Python prints for an object that has no text of its own.
_OBJECT: Final = re.compile(r"<[^<>\n]*(?:<[^<>\n]*>[^<>\n]*)* at 0x[0-9a-fA-F]+>")

_MOST: Final = 1000  # names of a folder that are compared with a wrong one
_SIMILAR: Final = 0.7  # how similar a name must be, as difflib counts
_SIMILAR_STEMS: Final = 0.8  # and what is before the dot, if the suffixes differ

#: Units of memory sizes, in bytes.
BYTE_UNITS: Final = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


def size_text(count: int) -> str:
    """Bytes in binary units: ``1.5 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < (1024 if unit == "B" else 999.5):  # three digits
            return f"{count} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def reason(error: BaseException) -> str:
    """The first line of an error of another library, at most 200 characters: the kind of error if it says nothing.
    What Python prints for an object without a text, such as `<_io.BytesIO object at 0x7f...>`, is left out."""
    text = _OBJECT.sub("it", str(error)).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def time_text(seconds: float) -> str:
    """``12.3 us``"""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def rate_text(rate: float, unit: str) -> str:
    """``790 TFLOP/s``"""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


_PLAIN_KEY: Final = re.compile(r"[^\W\d]\w*(?: \w+)*")
#: What dslc.yaml reads as a truth value or as nothing.
_YAML_WORDS: Final = frozenset(("true", "false", "null"))


def yaml_key(name: str) -> str:
    """A name as a key of dslc.yaml, in quotes if it would be read as anything else: ``area``, ``"0"``, ``"emb[0]"``."""
    plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _YAML_WORDS
    return name if plain else json.dumps(name, ensure_ascii=False)


#: Paths by which other programs read what is piped to them, and what to do instead.
STDIN = ("-", "/dev/stdin")
NO_STDIN = "what is piped to the command is not read: write it into a file, and name the file"


def meant_path(path: str | os.PathLike[str], other: str, *, suffix: str = "") -> str:
    """The help for a path without a file: the file next to it with the most similar name (or with ``suffix`` added), or
    why such a path cannot be one; else ``other``."""
    from difflib import get_close_matches

    if os.fspath(path) in STDIN:
        return NO_STDIN
    path = Path(path)
    if path.parts[:1] == ("~",) or "~" in path.parts[1:]:
        return "`~` is not replaced here: write the whole path"
    if any(part in ("http:", "https:", "s3:", "gs:", "hf:") for part in path.parts):
        return "files are read from disks: download it first, and name the copy"
    folder = path.parent
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST)]
    except (OSError, ValueError):
        return other if folder.exists() else f"the folder {folder} does not exist: {other}"
    if suffix and path.name + suffix in names:
        return f"did you mean `{path.name}{suffix}`?"
    kept = [name for name in sorted(names) if not suffix or name.endswith(suffix)]
    close = next((name for name in kept if name.lower() == path.name.lower()), None)
    kept = [name for name in kept if _alike(Path(name), path)]
    close = close or next(iter(get_close_matches(path.name, kept, 1, _SIMILAR)), None)
    return f"did you mean `{close}`?" if close else other


def _alike(one: Path, other: Path) -> bool:
    """False for files of different kinds whose names differ much, such as `make.py` and `mask.npy`."""
    from difflib import SequenceMatcher

    left, right = (path.name.partition(".")[0] for path in (one, other))
    return one.suffix == other.suffix or SequenceMatcher(None, left, right).ratio() >= _SIMILAR_STEMS


def of_percentage(value: float, *, below: bool = False) -> str | None:
    """The help for a number out of 0..1 that looks like a percentage, as 30 for 0.3; None for another one. ``below``:
    1 is out of range, too."""
    if not 2 <= value <= 100 or (below and value == 100):
        return None
    return f"it is a fraction, no percentage: write {value / 100:g}"
