"""The head of a safetensors file: names, dtypes, shapes and offsets of the tensors, read and checked before their
bytes.

Only the file's header is read, which has at most 16 MiB, so the cost of a rejection does not depend on the file's size.
The limits are far above published files: the largest ones have some thousands of tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final, NoReturn

from dslc.base.errors import ArtifactError
from dslc.base.json_size import too_large
from dslc.base.words import reason
from dslc.runtime.artifact.container import MAGIC
from dslc.runtime.artifact.dtypes import ITEMSIZE, MOST_ELEMENTS, elements_of_axes
from dslc.runtime.data.kinds import UNCOVERS, other_kind

LONGEST_HEADER: Final = 16 << 20  # bytes
MOST_TENSORS: Final = 100_000
MOST_AXES: Final = 64
LONGEST_NAME: Final = 1024  # characters
_MOST_VALUES: Final = 3_000_000  # values in the header's JSON: 100,000 tensors of rank 8 with their digests
_DEPTH: Final = 3  # nested brackets: the header, a tensor's entry, its shape
_ZIP: Final = b"PK\x03\x04"
_TEXT: Final = frozenset(b"\t\n\r" + bytes(range(0x20, 0x7F)))
_PUBLISHED: Final = "name its weights: the published ones are NAME.safetensors next to it"
_NAMED: Final = "name a file of weights, such as NAME.safetensors"
DIGEST: Final = "sha256:"
METADATA: Final = "__metadata__"
FILE_NAME: Final = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8",
    "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8", "b1": "BOOL",
}  # fmt: skip
_OUR_NAME: Final = {theirs: ours for ours, theirs in FILE_NAME.items()}
# Dtypes of the format that our tensors never have; they are parsed so that an error can name them.
_OTHER: Final = {
    "C64": 8, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a file without its bytes, which are at ``start`` to ``end`` after the header. ``dtype`` is our name,
    or the format's name for an unsupported dtype."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Head:
    """``body``: the offset of the tensors' bytes. ``metadata`` excludes the ``digests``, which are listed by tensor."""

    body: int
    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    digests: Mapping[str, str]


def damaged(place: str, why: str) -> NoReturn:
    """Raise ArtifactError R306 for a damaged file."""
    raise ArtifactError("R306", why, place=place, help="copy the file again from its origin, or train again")


def header_length(start: bytes, size: int, place: str) -> int:
    """The header's length, from the first 8 of a file's ``size`` bytes. ArtifactError R306 for an impossible length."""
    length = int.from_bytes(start[:8], "little")
    if len(start) < 8 or length > LONGEST_HEADER or 8 + length > size:
        _refuse_other_kind(start, place)
        if len(start) < 8:
            damaged(place, f"a tensor file has at least 8 bytes, this one has {len(start)}")
        damaged(place, f"its header would be {length} bytes long")
    return length


def _refuse_other_kind(start: bytes, place: str) -> None:
    """Raise ArtifactError R306 for a file that is known, but holds no safetensors."""
    if not start:
        raise ArtifactError("R306", "the file is empty", place=place, help="copy it again from its origin")
    found = other_kind(start)
    if start[:4] == _ZIP:
        found = "it is a zip file as PyTorch's .pt and numpy's .npz", ""
    elif start[:8] == MAGIC:
        found = "it is an artifact of dslc", _PUBLISHED
    elif found is None and len(start) >= 8 and all(byte in _TEXT for byte in start[:8]):
        found = "it is a text", _NAMED
    if place.lower().endswith(".onnx"):
        found = "it is a model of ONNX", ""
    if found is not None:
        what, help = found
        convert = "write its tensors with safetensors: safetensors.torch.save_file(model.state_dict(), PATH)"
        help = help if help in (*UNCOVERS, _PUBLISHED, _NAMED) else convert
        raise ArtifactError("R306", f"{what.partition(',')[0]}, not safetensors", place=place, help=help)


def parse_head(text: bytes, body_bytes: int, place: str) -> Head:
    """The head from its JSON, for a file with ``body_bytes`` bytes after it. ArtifactError R306 names rule and
    tensor."""
    header = json_object(text, place, "its header", values=_MOST_VALUES, depth=_DEPTH)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        damaged(place, "its metadata is not a table of text")
    if len(header) > MOST_TENSORS:
        damaged(place, f"it has {len(header)} tensors, more than {MOST_TENSORS}")
    _check_texts(text, header, metadata, place)
    entries = {name: _entry(name, entry, body_bytes, place) for name, entry in header.items()}
    spans = sorted((entry.start, entry.end) for entry in entries.values())
    if any(a[1] != b[0] for a, b in pairwise([(0, 0), *spans, (body_bytes, body_bytes)])):
        damaged(place, "its tensors overlap, leave holes, or do not end with the file")
    digests = {k.removeprefix(DIGEST): v for k, v in metadata.items() if k.startswith(DIGEST)}
    texts = {k: v for k, v in metadata.items() if not k.startswith(DIGEST)}
    return Head(8 + len(text), entries, texts, digests)


def _check_texts(text: bytes, header: Mapping[str, Any], metadata: Mapping[str, str], place: str) -> None:
    """Checks that names are short and that every text can be encoded: JSON escapes can also denote a lone surrogate."""
    if header and max(map(len, header)) > LONGEST_NAME:
        damaged(place, f"the name of a tensor is longer than {LONGEST_NAME} characters")
    if b"\\" in text:
        try:
            "".join((*header, *metadata, *metadata.values())).encode()
        except UnicodeEncodeError:
            damaged(place, "a name or a string in it contains a lone surrogate")


def _entry(name: str, entry: Any, body_bytes: int, place: str) -> Entry:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        damaged(place, f"the entry of tensor {name[:80]!r} is malformed")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        damaged(place, f"the entry of tensor {name[:80]!r} is malformed")
    start, end = offsets
    ours = _OUR_NAME.get(dtype)
    itemsize = ITEMSIZE[ours] if ours is not None else _OTHER.get(dtype)
    if itemsize is None:
        damaged(place, f"tensor {name[:80]!r} has the dtype {dtype[:16]!r}, which is not known")
    if not start <= end <= body_bytes or end - start != prod(shape) * itemsize:
        damaged(place, f"tensor {name[:80]!r} is at {start}..{end}, which does not fit its shape or the file")
    if end == start and elements_of_axes(shape) > MOST_ELEMENTS:  # else the file's size bounds it
        damaged(place, f"the axes of tensor {name[:80]!r} multiply to more than {MOST_ELEMENTS} elements")
    return Entry(ours or dtype, tuple(shape), start, end)


def _naturals(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= MOST_AXES and all(type(v) is int and 0 <= v < 1 << 63 for v in value)
    )


def json_object(text: bytes, place: str, said: str, *, values: int, depth: int) -> dict[str, Any]:
    """The JSON object in a text. ArtifactError R306 if there is none, it has more values or is nested deeper than
    given, or names a key twice; ``said`` is the text's name in the message."""

    def pairs(listed: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(listed)
        if len(table) != len(listed):
            raise ValueError("a name occurs twice")
        return table

    def constant(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a JSON number")

    rule = too_large(text, values=values, depth=depth)
    if rule is not None:
        damaged(place, f"{said} is not that of a tensor file: {rule}")
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        damaged(place, f"{said} is not JSON: {reason(error)}")
    if not isinstance(value, dict):
        damaged(place, f"{said} is not a JSON object")
    table: dict[str, Any] = value
    return table
