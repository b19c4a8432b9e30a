"""Why a text is no table or no record, in words for its author."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dslc.runtime.data.tables.packed import plain
from dslc.runtime.data.tables.records import LONGEST

_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
#: What the csv module says -> what is meant.
_CSV: Final = {
    "unexpected end of data": f"a quoted field does not end in the file, or in {LONGEST >> 20} MiB of it: "
    "a quote is missing, or one inside of the field is not written twice",
    "',' expected after '\"'": "text follows a closing quote; a quote inside of a quoted field is written twice",
    "new-line character seen in unquoted field": "a line end (CR) inside of a field",
}


def said(error: Exception) -> str:
    """The reason why a line is no record."""
    if isinstance(error, UnicodeDecodeError):
        if error.object.startswith(_UTF16):
            return "it is UTF-16, not UTF-8"
        return f"the byte 0x{error.object[error.start]:02x} at its position {error.start + 1} is not UTF-8"
    text = str(error)
    return next((meant for begin, meant in _CSV.items() if text.startswith(begin)), text)


def help_for_head(error: Exception, path: Path, line: bytes) -> str:
    """What to do about a first line that is no record."""
    name = plain(path.name)[:60]
    if isinstance(error, UnicodeDecodeError):
        encoding = "UTF-16" if line.startswith(_UTF16) else "LATIN1"
        return f"convert it, for example by: iconv -f {encoding} -t UTF-8 {name} > new-{name}"
    if b"\r" in line.rstrip(b"\r\n"):
        return f"its lines seem to end with CR alone: tr '\\r' '\\n' < {name} > new-{name}"
    return "write it as CSV with one row per line"


def wrong_width(record: Sequence[object], width: int) -> str:
    """Why a line with these fields is no record of ``width`` columns."""
    if any("\0" in each for each in record if isinstance(each, str)):
        return "it holds NUL bytes"
    found = len(record)
    return "the line is empty" if found == 0 else f"it has {found} field{'' if found == 1 else 's'}, not {width}"
