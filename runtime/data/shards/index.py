"""Where each member of each sample stands in a shard, found by one pass over the headers.

As in WebDataset, a member's base name ends at the first dot of its last part, the rest is its suffix (in small
letters), and members with one base name in sequence are one sample. Members without a base name or a suffix, such as
``README`` and ``._x.jpg``, are skipped. The index of a large shard is kept in the cache, by the file's identity.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.cache import Cache
from dslc.base.errors import DataError
from dslc.runtime.data.file import open_file
from dslc.runtime.data.shards.headers import Member, members

_MOST_SUFFIXES: Final = 1000
_KEPT: Final = 1000  # members; a smaller shard is scanned as fast as its index is read
_KIND: Final = "shard"
_VERSION: Final = "1"  # of the index in the cache
_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}

Identity = tuple[int, int, int, int, int]  # device, inode, size, modification and change time in ns


@dataclass(frozen=True)
class Index:
    """``places``: for each suffix, (sample, offset, size) of its members, each i64[members]."""

    identity: Identity
    samples: int
    places: Mapping[str, NDArray[np.int64]]

    def packed(self) -> bytes:
        head = {"samples": self.samples, "suffixes": [[name, rows.shape[1]] for name, rows in self.places.items()]}
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + b"".join(rows.tobytes() for rows in self.places.values())

    @classmethod
    def unpacked(cls, identity: Identity, data: bytes) -> Index:
        """The index in a payload of the cache, which has verified it."""
        at = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:at])
        places = {}
        for name, count in head["suffixes"]:
            places[name] = np.frombuffer(data, np.int64, 3 * count, at).reshape(3, count)
            at += 24 * count
        return cls(identity, head["samples"], places)


def identity_of(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def index_of(path: Path) -> Index:
    """The index of a shard. DataError R101 for a file that is missing, damaged, compressed, or no plain tar file."""
    with open_file(path) as file:
        return _index(path, identity_of(file.fileno()))


@lru_cache(maxsize=10_000)
def _index(path: Path, identity: Identity) -> Index:
    cache = Cache.open()
    fields = (_VERSION, *map(str, identity))
    found = cache.get(_KIND, fields)
    if found is not None:
        return Index.unpacked(identity, found)
    index = _scanned(path, identity)
    if sum(rows.shape[1] for rows in index.places.values()) >= _KEPT:
        cache.put(_KIND, fields, index.packed())
    return index


def _scanned(path: Path, identity: Identity) -> Index:
    places: dict[str, tuple[array[int], array[int], array[int]]] = {}
    base, sample, seen = None, -1, set[str]()
    for its, suffix, member in sampled(path):
        if its != base:
            base, sample = its, sample + 1
            seen.clear()
        if suffix in seen:
            refuse(path, f"the sample {its[:80]!r} has two members .{suffix[:40]}")
        seen.add(suffix)
        if suffix not in places:
            if len(places) == _MOST_SUFFIXES:
                refuse(path, f"its members have more than {_MOST_SUFFIXES} different suffixes")
            places[suffix] = array("q"), array("q"), array("q")
        for column, value in zip(places[suffix], (sample, member.start, member.size)):
            column.append(value)
    arrays = {suffix: np.array([np.frombuffer(each, np.int64) for each in rows]) for suffix, rows in places.items()}
    return Index(identity, sample + 1, arrays)


def sampled(path: Path) -> Iterator[tuple[str, str, Member]]:
    """Base name, suffix and place of each member that belongs to a sample."""
    with open_file(path) as file:
        fd = file.fileno()
        start = os.pread(fd, 2, 0)
        if start in _COMPRESSED:
            refuse(path, f"it is compressed with {_COMPRESSED[start]}; only an uncompressed tar can be read by row")

        def damaged(why: str) -> NoReturn:
            refuse(path, why)

        for member in members(fd, os.fstat(fd).st_size, damaged):
            folder, slash, last = member.name.rpartition("/")
            stem, _, suffix = last.partition(".")
            if stem and suffix:
                yield folder + slash + stem, suffix.lower(), member


def refuse(path: Path, why: str) -> NoReturn:
    help = "write it again as an uncompressed tar of plain files: tar -cf FILE.tar FOLDER"
    raise DataError("R101", f"the shard is refused: {why}", place=str(path), help=help)
