"""Files changed at random with their structure in mind: lengths, offsets, counts, nesting, huge claims, names."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

_SIZES: Final = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**40,
    2**63 - 1,
    2**64 - 1,
)
_NAMES: Final = (
    "../../etc/passwd",
    "/etc/passwd",
    "a\x00b",
    "\x1b[31m",
    "\u202e",
    "a" * 5000,
    "",
    ".",
    "CON",
    "\ud800",
)


def numbers(data: bytearray, draw: random.Random) -> None:
    """A field of 1, 2, 4 or 8 bytes, of either byte order, gets the size of something else, or nearly its own."""
    form = draw.choice(["B", "<H", ">H", "<I", ">I", "<Q", ">Q"])
    width = struct.calcsize(form)
    at = draw.randrange(max(1, len(data) - width))
    if len(data) < at + width:
        return
    [own] = struct.unpack_from(form, data, at)
    value = draw.choice([*_SIZES, own + 1, own - 1, own * 2, len(data), len(data) + 1])
    struct.pack_into(form, data, at, value % (1 << 8 * width))


def varints(data: bytearray, draw: random.Random) -> None:
    """A number as Thrift and protobuf write them."""
    at, value, made = draw.randrange(len(data)), draw.choice(_SIZES), bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    data[at : at + draw.choice([1, len(made)])] = made


def bytes_(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 6)):
        data[draw.randrange(len(data))] = draw.choice([0, 255, 127, 128, draw.randrange(256)])


def pieces(data: bytearray, draw: random.Random) -> None:
    """A piece is removed, repeated, or put somewhere else."""
    start = draw.randrange(len(data))
    piece = data[start : start + draw.choice([1, 4, 16, 64, 512, len(data)])]
    match draw.randrange(4):
        case 0:
            del data[start : start + len(piece)]
        case 1:
            data[start:start] = piece * draw.choice([1, 2, 100])
        case 2:
            at = draw.randrange(len(data))
            data[at : at + len(piece)] = piece
        case _:
            del data[start:]


def tails(data: bytearray, draw: random.Random) -> None:
    """The last bytes, at which many formats keep their directory."""
    for _ in range(draw.randint(1, 4)):
        data[len(data) - 1 - draw.randrange(min(len(data), 400))] = draw.choice([0, 1, 255, 128, draw.randrange(256)])


def words(data: bytearray, draw: random.Random) -> None:
    """What means something in text: brackets, quotes, numbers that are no numbers, names of other files."""
    marks = ["[" * 2000, "{" * 2000, '"', ",", "\n", "\r", "1e999", "-", "9" * 400, "NaN", "null", "\\ud800", *_NAMES]
    at = draw.randrange(len(data))
    data[at : at + draw.randrange(3)] = draw.choice(marks).encode("utf-8", "surrogatepass")


def values(data: bytearray, draw: random.Random) -> None:
    """A line of JSON, of which one value becomes another one of it, or one of another kind; other text is left."""
    lines = bytes(data).split(b"\n")
    at = draw.randrange(len(lines))
    try:
        tree = json.loads(lines[at])
    except (ValueError, RecursionError):
        return words(data, draw)
    places = _places(tree)
    if not places:
        return words(data, draw)
    holder, key = draw.choice(places)
    deep: Any = 1
    for _ in range(draw.choice([3, 90, 500])):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    other, its = draw.choice(places)
    new = [None, True, -1, 0, 1, 2**31, 2**32 - 1, 2**63, 1e308, "x" * 9000, [], {}, deep, *_NAMES]
    holder[key] = json.loads(json.dumps(draw.choice([*new, *[other[its]] * 9])))
    lines[at] = json.dumps(tree).encode()
    data[:] = b"\n".join(lines)
    return None


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every place of a value in a tree: its list or object, and the index or the key."""
    found = []
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            inner = list(each.items()) if isinstance(each, dict) else list(enumerate(each))
            found += [(each, key) for key, _ in inner]
            waiting += [value for _, value in inner]
    return found


_BINARY: Final = (numbers, numbers, varints, bytes_, pieces, tails)
_TEXT: Final = (words, values, pieces, bytes_)
_JSON: Final = (values, values, values, values, words, pieces)
Mutation = Callable[[bytearray, random.Random], None]
#: What changes the files of each kind.
MUTATIONS: Final[Mapping[str, tuple[Mutation, ...]]] = {
    "parquet": _BINARY, "arrow": _BINARY, "tar": (*_BINARY, words), "jpg": _BINARY, "png": _BINARY, "webp": _BINARY,
    "bmp": _BINARY, "jsonl": _JSON, "csv": _TEXT, "tokenizer": _JSON,
    "safetensors": (*_BINARY, words),    "npz": _BINARY, "npy": (*_BINARY, words), "run": _JSON,
}  # fmt: skip


def mutated(kind: str, whole: bytes, draw: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(draw.choice([1, 1, 2, 3])):
        if data:
            draw.choice(MUTATIONS[kind])(data, draw)
    return bytes(data)
