"""Digests of this compiler's own sources, because sources change more often than the version number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(sources: Iterable[Path]) -> str:
    """SHA-256 of the files, and of those in the folders, in order, without compiled bytecode."""
    digest = hashlib.sha256()
    for source in sources:
        inside = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
        for path in inside:
            if path.suffix != ".pyc":
                data = path.read_bytes()
                digest.update(f"{path.relative_to(source.parent)} {len(data)}\n".encode() + data)
    return digest.hexdigest()
