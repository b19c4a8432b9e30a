"""A process that publishes, to be killed: ``python publishing.py KIND FOLDER TAG``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dslc.base.failpoint import fail
from dslc.base.publish import publish_bytes, publish_files

NAMES = ("__init__.py", "__init__.pyi", "net.dslc")


def content(tag: str) -> bytes:
    return (tag * 50_000).encode()


def naive(path: Path, tag: str) -> None:
    """What publish is there to replace: it must be caught by every harness."""
    with path.open("wb") as file:
        half = len(content(tag)) // 2
        fail("naive.write")
        file.write(content(tag)[:half])
        file.flush()
        fail("naive.write")
        file.write(content(tag)[half:])
        fail("naive.close")


def publish(kind: str, folder: Path, tag: str) -> None:
    if kind == "one":
        publish_bytes(folder / "net.dslc", content(tag))
    elif kind == "stream":
        publish_bytes(folder / "net.dslc", lambda sink: [sink.write(tag.encode() * 10_000) for _ in range(5)])
    elif kind == "many":
        publish_files(folder, {name: content(tag) for name in NAMES}, "net.dslc")
    else:
        naive(folder / "net.dslc", tag)


if __name__ == "__main__":
    for text in sys.argv[3:]:
        publish(sys.argv[1], Path(sys.argv[2]), text)
    os._exit(0)
