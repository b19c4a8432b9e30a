"""The bytes of one cache entry: a header with its key, the payload, and the SHA-256 of both."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

Field: TypeAlias = str | bytes

LARGEST: Final = 64 << 20  # bytes of one payload
KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
NAME: Final = re.compile(r"([a-z][a-z0-9_]{0,31})-[0-9a-f]{64}")
LOCK: Final = re.compile(r"\.[a-z][a-z0-9_]{0,31}-[0-9a-f]{64}\.lock")
_HEAD: Final = struct.Struct("<8s32sQ")  # magic with a version, key, payload size in bytes
_MAGIC: Final = b"\x89DSLCC\x01\n"
_DIGEST: Final = 32
OVERHEAD: Final = _HEAD.size + _DIGEST  # bytes in addition to the payload


def key_of(kind: str, fields: Sequence[Field]) -> bytes:
    """SHA-256 of the kind and every field, each preceded by its length."""
    digest = hashlib.sha256()
    for field in (kind, *fields):
        data = field.encode() if isinstance(field, str) else field
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def name_of(kind: str, key: bytes) -> str:
    """The name of the entry's file."""
    assert KIND.fullmatch(kind), f"no kind of entry: {kind!r}"
    return f"{kind}-{key.hex()}"


def lock_of(name: str) -> str:
    """The name of the lock file; the process that compiles the entry holds its lock."""
    return f".{name}.lock"


def pack(key: bytes, payload: bytes) -> bytes:
    """The bytes of an entry."""
    data = _HEAD.pack(_MAGIC, key, len(payload)) + payload
    return data + hashlib.sha256(data).digest()


def unpack(data: bytes, key: bytes) -> bytes | None:
    """The payload of the entry with this key; None if any byte of the entry is wrong."""
    if len(data) < OVERHEAD or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        return None
    magic, found, size = _HEAD.unpack_from(data)
    good = magic == _MAGIC and found == key and size == len(data) - OVERHEAD
    return data[_HEAD.size : -_DIGEST] if good else None
