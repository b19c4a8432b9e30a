"""Writes faulty containers, independently of the real writer, so that the writer's mistakes cannot hide."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

END = b"DSLC-END"


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def take_apart(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header and the blobs' bytes of a good artifact."""
    length = struct.unpack_from("<Q", data, 12)[0]
    header = json.loads(data[64 : 64 + length])
    start = len(pad(data[: 64 + length]))
    return header, {b["name"]: data[start + b["offset"] : start + b["offset"] + b["bytes"]] for b in header["blobs"]}


def canonical_text(value: Any) -> bytes:
    """Canonical JSON, plus what it forbids: NaN, deep nesting, duplicate keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def put_together(text: bytes, pieces: list[bytes], end: bytes = END) -> bytes:
    """The preamble with the correct digest of any header text, the pieces at multiples of 64, the end marker."""
    out = struct.pack("<8sIQ32s12x", b"\x89DSLC\r\n\x1a", 1, len(text), hashlib.sha256(text).digest())
    out = pad(out + text)
    for piece in pieces:
        out = pad(out + piece)
    return out + end


def table_of(blobs: list[tuple[str, str, bytes]]) -> list[dict[str, Any]]:
    """A valid blob table for (name, kind, bytes) in this order."""
    table, at = [], 0
    for name, kind, data in blobs:
        sha = hashlib.sha256(data).hexdigest()
        table.append({"name": name, "kind": kind, "offset": at, "bytes": len(data), "sha256": sha})
        at += len(data) + -len(data) % 64
    return table
