"""Packs several named pieces of code into one: the content of a kernel's cache entry."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

_COUNT: Final = struct.Struct("<I")
_ROW: Final = struct.Struct("<IQ")  # sizes in bytes of the name and of the piece, which follow


def bundle(pieces: Mapping[str, bytes]) -> bytes:
    """The pieces with their names, in the order of the names."""
    parts = [_COUNT.pack(len(pieces))]
    for name in sorted(pieces):
        encoded = name.encode()
        parts += [_ROW.pack(len(encoded), len(pieces[name])), encoded, pieces[name]]
    return b"".join(parts)


def unbundle(data: bytes) -> dict[str, bytes]:
    """The pieces by name. ``data`` comes from ``bundle``: the cache has verified it."""
    [count] = _COUNT.unpack_from(data)
    at, pieces = _COUNT.size, {}
    for _ in range(count):
        name_bytes, piece_bytes = _ROW.unpack_from(data, at)
        at += _ROW.size
        name = data[at : at + name_bytes].decode()
        at += name_bytes
        pieces[name] = data[at : at + piece_bytes]
        at += piece_bytes
    assert at == len(data), "a bundle does not end by itself"
    return pieces
