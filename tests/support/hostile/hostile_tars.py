"""Tar files that want a reader's time or memory, or that would lose samples silently if a reader accepted them."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

BLOCK: Final = 512


def header(
    name: bytes, size: int | bytes, kind: bytes = b"0", prefix: bytes = b"", magic: bytes = b"ustar\x0000"
) -> bytes:
    """One header with a right checksum; ``size`` as bytes is written as it is."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    head = bytearray(BLOCK)
    head[: len(name)] = name
    head[100:108], head[108:116], head[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    head[124:136], head[136:148] = field.ljust(12, b"\0"), b"%011o\0" % 0
    head[148:156], head[156:157], head[257:265] = b" " * 8, kind, magic
    head[345 : 345 + len(prefix)] = prefix
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def member(name: bytes, data: bytes, kind: bytes = b"0", **more: bytes) -> bytes:
    return header(name, len(data), kind, **more) + data + bytes(-len(data) % BLOCK)


END: Final = bytes(2 * BLOCK)
GOOD: Final = member(b"a.cls", b"1") + member(b"b.cls", b"2") + END


def pax(record: bytes, kind: bytes = b"x") -> bytes:
    return member(b"pax", record, kind)


def packed(mode: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as file:
        info = tarfile.TarInfo("a.cls")
        info.size = 1
        file.addfile(info, io.BytesIO(b"1"))
    return made.getvalue()


#: What is wrong -> (the bytes, words of the refusal).
TARS: Final[dict[str, tuple[bytes, str]]] = {
    "nothing": (b"", "cut off"),
    "no end mark": (GOOD[: -2 * BLOCK], "cut off"),
    "cut in a member": (member(b"a.cls", b"1")[:600], "cut off"),
    "cut in a header": (GOOD[:700], "cut off"),
    "text": (b"hello " * 200, "is no number"),
    "a wrong checksum": (GOOD.replace(b"a.cls", b"c.cls", 1), "checksum"),
    "a negative size": (header(b"a.cls", b"\xff" * 12) + END, "negative"),
    "a negative octal size": (header(b"a.cls", b"-0000000001") + END, "no number"),
    "a huge binary size": (header(b"a.cls", b"\x80" + b"\x7f" * 11) + END, "cut off"),
    "a hard link": (header(b"a.cls", 0, b"1") + END, "a link"),
    "a symbolic link": (header(b"a.cls", 0, b"2") + END, "a link"),
    "a device": (header(b"a.cls", 0, b"3") + END, "a device"),
    "a pipe": (header(b"a.cls", 0, b"6") + END, "a pipe"),
    "a sparse file": (header(b"a.cls", 0, b"S") + END, "sparse"),
    "a sparse file of pax": (pax(b"22 GNU.sparse.major=1\n") + GOOD, "sparse"),
    "a kind of tomorrow": (header(b"a.cls", 0, b"Q") + END, "of the kind"),
    "a folder with bytes": (member(b"a/", b"x" * 9, b"5") + GOOD, "has bytes"),
    "a long name without an end": (header(b"L", 1 << 40, b"L") + END, "cut off"),
    "a name of 5 KB": (member(b"L", b"n" * 5000, b"L") + GOOD, "extended header"),
    "records of 100 KB": (pax(b"x" * 100_000) + GOOD, "extended header"),
    "a record without a length": (pax(b"path=a.cls\n") + GOOD, "damaged"),
    "a record that is too long": (pax(b"99 path=a.cls\n") + GOOD, "damaged"),
    "a negative pax size": (pax(b"11 size=-1\n") + GOOD, "a size is"),
    "a huge pax size": (pax(b"19 size=99999999999\n".replace(b"19", b"20")) + GOOD, "cut off"),
    "a global path": (pax(b"14 path=x.cls\n", b"g") + GOOD, "global"),
    "a second archive": (GOOD + GOOD, "goes on"),
    "a sample with a member twice": (member(b"a.cls", b"1") * 2 + END, "two members"),
    "gzip": (gzip.compress(GOOD), "compressed with gzip"),
    "bzip2": (packed("w:bz2"), "compressed with bzip2"),
    "xz": (packed("w:xz"), "compressed with xz"),
}


def tiny(count: int) -> bytes:
    """``count`` empty members."""
    return b"".join(header(b"%07d.cls" % number, 0) for number in range(count)) + END


def tars() -> dict[str, Callable[[Path], None]]:
    """The files above, and large ones, by what is wrong."""
    made = {what: partial(_write, data) for what, (data, _) in TARS.items()}
    return {
        **made,
        "a hundred thousand members and one": lambda path: _write(tiny(100_001), path),
        "a member of 1 TiB in a hole": _hole,
        "many records": lambda path: _write(pax(b"5 a=\n" * 9000) * 2000, path),
        "many headers of records": lambda path: _write(pax(b"5 a=\n" * 64) * 20_000, path),
        "a sample without an array": partial(_write, GOOD),
        "an array of 3 GiB in a hole": partial(_hole, size=3 << 30),
    }


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _hole(path: Path, size: int = 1 << 36) -> None:
    with path.open("wb") as file:
        file.write(header(b"a.npy", b"\x80" + size.to_bytes(11, "big")))
        file.truncate(BLOCK + size)
        file.seek(0, 2)
        file.write(END)
