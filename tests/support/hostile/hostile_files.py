"""Files that want a reader's time or memory, by the kind of file that they claim to be."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from dslc.base import canonical
from dslc.runtime.artifact import container, plan_schema
from dslc.runtime.weights import safetensors_header as tensorhead

GIB: Final = 1 << 30
Make: type = Callable[[Path], None]


def sparse(start: bytes, size: int = 3 * GIB, end: bytes = b"") -> Callable[[Path], None]:
    """A file of that size with holes between its start and its end."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(start)
            file.truncate(size)
            file.seek(0, os.SEEK_END)
            file.write(end)

    return make


def holding(data: Callable[[], bytes]) -> Callable[[Path], None]:
    """A file of bytes that are made when it is written: what a process starts from counts as its memory."""
    return lambda path: path.write_bytes(data()) and None


#: What no reader takes, whatever it reads.
ANYWHERE: Final[dict[str, Callable[[Path], None]]] = {
    "3 GiB of nothing": sparse(b""),
    "a FIFO without a writer": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "a full device": lambda path: path.symlink_to("/dev/full"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "nothing": holding(lambda: b""),
    "one byte": holding(lambda: b"\xff"),
}


def tensors(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def _entries(count: int) -> bytes:
    rows = (f'"{i}":{{"dtype":"U8","shape":[],"data_offsets":[{i},{i + 1}]}}' for i in range(count))
    return ("{" + ",".join(rows) + "}").encode()


def _one(name: str, shape: object, end: int = 0) -> bytes:
    return json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()


_MOST: Final = tensorhead.LONGEST_HEADER


def weights() -> dict[str, Callable[[Path], None]]:
    count = tensorhead.MOST_TENSORS
    return {
        "a header of 3 GiB": sparse(struct.pack("<Q", 2 * GIB)),
        "a header of braces": sparse(struct.pack("<Q", _MOST) + b"{" * _MOST),
        "a header of lists": holding(lambda: tensors(b'{"a":[' + b"[]," * (_MOST // 3 - 9) + b"[]]}")),
        "a header of objects": holding(lambda: tensors(b'{"a":[' + b'{"a":1},' * (_MOST // 8 - 9) + b"{}]}")),
        "a header of texts": holding(lambda: tensors(b'{"a":[' + b'"",' * (_MOST // 3 - 9) + b'""]}')),
        "a header of quotes": holding(lambda: tensors(b'"' * _MOST)),
        "a header of escapes": holding(lambda: tensors(b'{"' + b"\\" * (_MOST - 4) + b'"}')),
        "metadata of escapes": holding(
            lambda: tensors(b'{"__metadata__":{"a":"' + b"\\u0041" * (_MOST // 6 - 9) + b'"},"b":1}')
        ),
        "deep nesting": holding(lambda: tensors(b"[" * (_MOST // 2) + b"]" * (_MOST // 2))),
        "one tensor too many": holding(lambda: tensors(_entries(count + 1), bytes(count + 1))),
        "the most tensors, one byte short": holding(lambda: tensors(_entries(count), bytes(count - 1))),
        "270,000 tensors": holding(lambda: tensors(_entries(270_000), bytes(270_000))),
        "a name of 10 MB": holding(lambda: tensors(_one("x" * 10_000_000, [1], 4), bytes(4))),
        "half a character": holding(lambda: tensors(_one("\ud800", [1], 4), bytes(4))),
        "half a character in its metadata": holding(lambda: tensors(b'{"__metadata__":{"a":"\\udfff"}}')),
        "an integer beyond 2^63": holding(lambda: tensors(_one("a", [1 << 63]))),
        "a number of a million digits": holding(lambda: tensors(b'{"a":' + b"9" * 1_000_000 + b"}")),
        "an axis of zero and a huge one": holding(lambda: tensors(_one("a", [1 << 62, 0]))),
        "huge axes": holding(lambda: tensors(_one("a", [1 << 31, 1 << 31, 1 << 31]))),
        "a name twice": holding(lambda: tensors(b'{"a":{},"a":{}}')),
        "ranges that overlap": holding(
            lambda: tensors(_one("a", [1], 4)[:-1] + b"," + _one("b", [1], 4)[1:], bytes(4))
        ),
        "PyTorch's zip": sparse(b"PK\x03\x04"),
    }  # fmt: skip


def npy(shape: str, data: bytes = b"", descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _directory(count: int) -> bytes:
    """A zip whose directory lists so many members, by its own words only a few."""
    entry = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    size = len(entry) * count
    return entry * count + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0)


def _member(data: bytes, method: int, *, damaged: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("x.npy", data)
    packed = bytearray(buffer.getvalue())
    if damaged:
        for at in range(45, 75):
            packed[at] ^= 0xFF
    return bytes(packed)


def _bomb(path: Path) -> None:
    """4 GiB of zeros in 4 MiB: rows of another size than the model's."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("x.npy", "w", force_zip64=True) as member:
        member.write(npy(f"({GIB // 8}, 8)"))
        part = bytes(1 << 24)
        for _ in range(256):
            member.write(part)


def arrays() -> dict[str, Callable[[Path], None]]:
    """For ``FILE.npz:x``."""
    good = npy("(2, 2)", bytes(16))
    methods = {"deflate": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2, "LZMA": zipfile.ZIP_LZMA}
    return {
        "a million members": holding(lambda: _directory(1_000_000)),
        "20,000 members": holding(lambda: _directory(20_000)),
        "a comment of 3 GiB": sparse(b"PK\x05\x06"),
        "no member of the name": holding(lambda: _directory(9_000)),
        **{
            f"damaged {name}": holding(partial(_member, good * 9, method, damaged=True))
            for name, method in methods.items()
        },
        "rows of another size in a bomb": _bomb,
        "an axis of zero and a huge one": holding(lambda: _member(npy("(4611686018427387904, 0)"), zipfile.ZIP_STORED)),
        "axes beyond 2^63": holding(
            lambda: _member(npy("(9999999999999999999, 9999999999999999999)"), zipfile.ZIP_STORED)
        ),
        "a huge shape": holding(lambda: _member(npy("(1099511627776, 2)"), zipfile.ZIP_STORED)),
    }


def tables() -> dict[str, Callable[[Path], None]]:
    """For ``FILE.csv:a,b``."""
    return {
        "3 GiB after the names": sparse(b"a,b\n"),
        "200 MiB of line ends": holding(lambda: b"a,b\n" + b"\n" * (200 << 20) + b"1,2\n"),
        "lines that are no records": holding(lambda: b"a,b\n" + b"x,y\n" * 2_000_000),
        "lines that are too short": holding(lambda: b"a,b\n" + b"1\n" * 2_000_000),
        "a line of 10 MB": holding(lambda: b"a,b\n1," + b"2" * 10_000_000 + b"\n"),
        "100,000 columns, two of one name": holding(lambda: b",".join(b"%d_" % i for i in range(90_000)) + b",5_\n"),
        "200,000 columns": holding(lambda: b"," * 200_000 + b"\n"),
        "names of 1 MB": holding(lambda: b"x" * 1_000_000 + b",y\n1,2\n"),
        "half a character": holding(lambda: b"\xed\xa0\x80,b\n1,2\n"),
        "a quote without an end": holding(lambda: b'"a,b\n1,2\n'),
        "huge numbers": holding(lambda: b"a,b\n" + b"9" * 1_000_00 + b",1\n"),
    }


def packed() -> dict[str, Callable[[Path], None]]:
    """For ``FILE.csv.gz:a,b``."""

    def zipped(*parts: bytes) -> Callable[[Path], None]:
        return holding(lambda: b"".join(gzip.compress(part) for part in parts))

    return {
        "4 GiB of zeros": holding(lambda: gzip.compress(b"a,b\n") + gzip.compress(bytes(1 << 24)) * 256),
        "100 MiB of line ends": holding(lambda: gzip.compress(b"a,b\n") + gzip.compress(b"\n" * (1 << 22)) * 25),
        "many streams without a byte": zipped(*[b""] * 20_000),
        "no gzip": holding(lambda: b"a,b\n1,2\n"),
        "cut off": holding(lambda: gzip.compress(b"a,b\n" + b"1,2\n" * 9)[:-1]),
    }


def tokens() -> dict[str, Callable[[Path], None]]:
    return {"an odd number of bytes": holding(lambda: b"abc")}


def images() -> dict[str, Callable[[Path], None]]:
    """For ``FILE-idx3-ubyte.gz``."""
    axes = struct.pack(">II", 1 << 16, 1 << 16)
    return {
        "4 GiB of zeros by gzip": holding(lambda: gzip.compress(b"\0\0\x08\x02" + axes + bytes(1 << 20))),
        "an axis of zero and huge ones": holding(lambda: gzip.compress(b"\0\0\x08\x04" + b"\xff" * 12 + bytes(4))),
        "axes beyond 2^63": holding(lambda: gzip.compress(b"\0\0\x08\x08" + b"\xff" * 32)),
        "no gzip": holding(lambda: b"\0\0\x08\x01" + bytes(8)),
    }


def artifact(header: bytes, blobs: bytes = b"") -> bytes:
    start = container.PREAMBLE.pack(container.MAGIC, 1, len(header), hashlib.sha256(header).digest()) + header
    return start + bytes(-len(start) % 64) + blobs + container.END


def artifacts(sound: Path) -> dict[str, Callable[[Path], None]]:
    """Artifacts whose digests are right; ``sound`` is one that is."""
    read = container.unpack(sound.read_bytes(), lambda header: None)
    header = {k: v for k, v in read.header.items() if k != "blobs"}

    def again(changed: dict[str, object], plan: Callable[[], bytes] | None = None) -> Callable[[Path], None]:
        first = next(b.name for b in read.blobs.values() if b.kind == "plan")

        def make(path: Path) -> None:
            other = None if plan is None else plan()
            blobs = [
                container.Blob(b.name, b.kind, b.data if other is None or b.name != first else other)
                for b in read.blobs.values()
            ]
            path.write_bytes(container.pack({**header, **changed}, blobs))

        return make

    def plan(**tables: object) -> Callable[[], bytes]:
        names = ("buffers", "inputs", "outputs", "scalars", "constants", "instructions", "names")
        return lambda: canonical.dumps({**{name: [] for name in names}, **tables})

    fill, wait = ["fill", 0, "00000000", 0, 0], ["wait", 0, 0]
    fills = [fill] * (plan_schema.MAX_VALUES // 8 - 1000)
    waits = [wait] * (plan_schema.MAX_VALUES // 5 - 1000)
    one: dict[str, object] = {"buffers": [["state", 0, "f32", [1]]], "names": ["n"]}
    state = header["state"]
    first, *others = state["tensors"]
    return {
        "3 GiB after the magic": sparse(container.MAGIC),
        "a header of 2^63 bytes": sparse(container.MAGIC + struct.pack("<IQ", 1, 1 << 63), 200 << 20),
        "a header of lists": holding(lambda: artifact(b"[" + b"[]," * (5 << 20) + b"[]]")),
        "a header of digits": holding(lambda: artifact(b"9" * (15 << 20))),
        "a header of texts": holding(lambda: artifact(b"[" + b'"",' * (5 << 20) + b'""]')),
        "a header of a million values": holding(lambda: artifact(b'{"a":[' + b"0," * 900_000 + b"0]}")),
        "a header nested deeply": holding(lambda: artifact(b"[" * (7 << 20) + b"]" * (7 << 20))),
        "options of a million values": again({"options": {"a": [0] * 900_000}, "name": "x"}),
        "half a character": again({"options": {"\ud800": "\udfff"}}),
        "a name of 10 MB": again({"name": "x" * 10_000_000}),
        "an axis of zero and a huge one": again(
            {"state": {**state, "tensors": [{**first, "shape": [1 << 62, 0, 1 << 62]}, *others]}}
        ),
        "200 MiB of plans": again({}, lambda: b"[" + b"0," * (100 << 20) + b"0]"),
        "29 MiB of plans": again({}, plan(instructions=[fill] * 1_150_000)),
        "a plan of many fills, the last one wrong": again(
            {}, plan(instructions=[*fills, ["fill", 1, "00", 0, 0]], **one)
        ),
        "a plan of many waits, the last one wrong": again(
            {}, plan(instructions=[["record", 0, 0], *waits, ["wait", 1, 0]])
        ),
        "a plan whose buffer has a huge axis": again({}, plan(buffers=[["work", 0, "f32", [1 << 62, 0, 1 << 62]]])),
        "a plan whose names are too long": again({}, plan(names=["n" * 513] * 20_000)),
        "a plan nested deeply": again({}, lambda: b"[" * 5_000_000 + b"]" * 5_000_000),
    }  # fmt: skip


def configurations() -> dict[str, Callable[[Path], None]]:
    return {
        "deep nesting": holding(lambda: b"[" * 500_000),
        "many keys": holding(lambda: b"".join(b"k%d: 1\n" % i for i in range(80_000))),
        "aliases of aliases": holding(
            lambda: b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (i, i) for i in range(9))
        ),
        "half a character": holding(lambda: b'model: "\\ud800"\n'),
        "an escape beyond Unicode": holding(lambda: b'model: "\\UFFFFFFFF"\n'),
        "a name of 1 MB": holding(lambda: b'"' + b"x" * 1_000_000 + b'": 1\n'),
        "a huge number": holding(lambda: b"train: {epochs: " + b"9" * 900_000 + b"}\n"),
    }


def sources() -> dict[str, Callable[[Path], None]]:
    return {
        "deep nesting": holding(lambda: b"nn 1\nmodel M(x: [B, 2]) -> [B, 2] { return " + b"(" * 90_000 + b"}"),
        "a name of 90 KB": holding(lambda: b"nn 1\nmodel " + b"M" * 90_000 + b"(x: [B, 2]) -> [B, 2] { return x }"),
        "half a character": holding(lambda: b"nn 1\nmodel \xed\xa0\x80(x: [B, 2]) -> [B, 2] { return x }"),
        "too long": holding(lambda: b"# " + b"x" * 200_000),
        "too many operations": holding(
            lambda: (
                b"nn 1\ndim B in 1..8\nblock a(x: [N, D]) -> [N, D] { for i in 0..100000 { x = relu(x) } return x }\n"
                b"model M(x: [B, 2]) -> [B, 2] { for i in 0..100000 { x = a(x) } return x }"
            )
        ),
    }


def measurements() -> dict[str, Callable[[Path], None]]:
    return {
        "deep nesting": holding(lambda: b"[" * 500_000),
        "no measurement": holding(lambda: b'{"step":{"median":1e999}}'),
    }
