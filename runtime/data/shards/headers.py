"""The members of an uncompressed tar file, from its headers alone (POSIX ustar and pax, GNU, V7).

Nothing is ever extracted: a name is text that is compared, never a path that is opened. Directories are skipped. Links,
devices, sparse files, and everything else that is no plain file are refused, because a sample would lack a member.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

BLOCK: Final = 512
_ZERO: Final = bytes(BLOCK)
_MOST_MEMBERS: Final = 100_000
_LONGEST_NAME: Final = 4096  # bytes
_LONGEST_RECORDS: Final = 1 << 16  # bytes of one pax header
_MOST_RECORDS: Final = 64  # of one pax header
_EXTENDED: Final = 32 << 20  # bytes of all extended headers, a record counted as 64 more
_LONGEST_END: Final = 1 << 20  # bytes of zeros after the last member; tar fills a record, of 10 KiB by default
_OCTAL = re.compile(rb" *([0-7]{1,12})[ \0]*\Z|[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\n]{1,100})=")
_PLAIN: Final = (b"0", b"\0", b"7")
_WORDS: Final = {
    b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe", b"K": "a link",
    b"S": "a sparse file", b"M": "a part of a file of another volume",
}  # fmt: skip
_SUM: Final = slice(148, 156)


@dataclass(frozen=True, slots=True)
class Member:
    """A plain file: ``start`` is the offset of its ``size`` bytes."""

    name: str
    start: int
    size: int


def members(fd: int, size: int, refuse: Callable[[str], NoReturn]) -> Iterator[Member]:
    """The plain files of the open tar file of ``size`` bytes, in order. ``refuse`` raises the error for a damaged or
    hostile one."""
    at, count, extended, given = 0, 0, 0, _Given()
    while True:
        head = os.pread(fd, BLOCK, at)
        if len(head) < BLOCK:
            refuse("it is cut off: the mark at its end is missing")
        if head == _ZERO:
            _check_end(fd, at, size, refuse)
            return
        if sum(head) - sum(head[_SUM]) + 8 * 32 != _octal(head[_SUM], refuse):
            refuse(f"the header at byte {at} does not match its checksum")
        count += 1
        if count > _MOST_MEMBERS:
            refuse(f"it has more than {_MOST_MEMBERS} members")
        kind = head[156:157]
        length = _length(head, refuse) if given.size is None or kind not in _PLAIN else given.size
        start = at + BLOCK
        if start + length > size:
            refuse(f"it is cut off: the member at byte {at} has {length} bytes, the file ends sooner")
        at = start + -(-length // BLOCK) * BLOCK
        if kind == b"L":
            given.name = _text(_extra(fd, start, length, _LONGEST_NAME, refuse).rstrip(b"\0"))
        elif kind in (b"x", b"g"):
            records = _records(_extra(fd, start, length, _LONGEST_RECORDS, refuse), refuse)
            extended += length + 64 * len(records)
            if extended > _EXTENDED:
                refuse(f"its extended headers have more than {_EXTENDED} bytes")
            if kind == b"x":
                given.take(records, refuse)
            elif any(name in (b"path", b"size") for name, _ in records):
                refuse("a global header names a path or a size")
        else:
            name, given = _name(head) if given.name is None else given.name, _Given()
            if kind == b"5" or (kind == b"\0" and name.endswith("/")):
                if length:
                    refuse(f"the folder {name[:80]!r} has bytes")
            elif kind in _PLAIN:
                yield Member(name, start, length)
            else:
                refuse(f"{name[:80]!r} is {_WORDS.get(kind, f'a member of the kind {kind!a}')}, not a plain file")


class _Given:
    """What extended headers say about the next member."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.size: int | None = None

    def take(self, records: list[tuple[bytes, bytes]], refuse: Callable[[str], NoReturn]) -> None:
        for name, value in records:
            if name.startswith(b"GNU.sparse"):
                refuse("it holds a sparse file")
            if name == b"path":
                if len(value) > _LONGEST_NAME:
                    refuse(f"a name has more than {_LONGEST_NAME} bytes")
                self.name = _text(value)
            elif name == b"size":
                if not re.fullmatch(rb"[0-9]{1,18}", value):
                    refuse(f"a size is {value[:40]!a}")
                self.size = int(value)


def _check_end(fd: int, at: int, size: int, refuse: Callable[[str], NoReturn]) -> None:
    """Refuses bytes after the end mark: a second archive there would be lost silently."""
    if size - at > _LONGEST_END or any(os.pread(fd, _LONGEST_END, at)):
        refuse(f"the archive ends at byte {at}, but the file goes on; write one archive to a file")


def _extra(fd: int, start: int, length: int, most: int, refuse: Callable[[str], NoReturn]) -> bytes:
    if length > most:
        refuse(f"an extended header has {length} bytes, more than {most}")
    return os.pread(fd, length, start)


def _records(data: bytes, refuse: Callable[[str], NoReturn]) -> list[tuple[bytes, bytes]]:
    """The records ``LENGTH NAME=VALUE\\n`` of a pax header."""
    found, at = list[tuple[bytes, bytes]](), 0
    while at < len(data) and data[at]:
        if len(found) == _MOST_RECORDS:
            refuse(f"an extended header has more than {_MOST_RECORDS} records")
        match = _RECORD.match(data, at)
        end = at + int(match[1]) if match else -1
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            refuse(f"its extended header is damaged: {data[at : at + 40]!a}")
        found.append((match[2], data[match.end() : end - 1]))
        at = end
    return found


def _name(head: bytes) -> str:
    name = head[:100].split(b"\0", 1)[0]
    prefix = head[345:500].split(b"\0", 1)[0] if head[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _length(head: bytes, refuse: Callable[[str], NoReturn]) -> int:
    field = head[124:136]
    if field[0] & 0x80:  # GNU: a large number in binary
        if field[0] & 0x40:
            refuse("a member has a negative size")
        return int.from_bytes(bytes([field[0] & 0x3F]) + field[1:], "big")
    return _octal(field, refuse)


def _octal(field: bytes, refuse: Callable[[str], NoReturn]) -> int:
    match = _OCTAL.match(field)
    if match is None:
        refuse(f"it is not a tar file, or damaged: {field!a} is no number")
    return int(match[1] or b"0", 8)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
