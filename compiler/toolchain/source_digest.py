"""Digests of this compiler's own sources, because sources change more often than the version number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(folders: Iterable[Path]) -> str:
    """SHA-256 of the files in the folders, in order, without compiled bytecode."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix != ".pyc" and p.is_file()):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(folder.parent)} {len(data)}\n".encode() + data)
    return digest.hexdigest()
