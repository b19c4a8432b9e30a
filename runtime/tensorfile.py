"""Files of named tensors in the safetensors format, with a SHA-256 of each tensor in the metadata.

Format (https://huggingface.co/docs/safetensors): u64 header length, a JSON header ``{name: {dtype, shape,
data_offsets}, "__metadata__": {text: text}}``, then the tensors' little-endian row-major bytes without holes. The
digest of tensor NAME stands under ``sha256:NAME``. The same tensors and metadata give the same bytes; the public
library orders its metadata by chance, and it reads these files as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from dslc.base.errors import ArtifactError, WeightsMissing
from dslc.runtime.dtypes import ITEMSIZE, name_of, numpy_dtype
from dslc.runtime.memory import ensure_free

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST_HEADER: Final = 16 * 1024 * 1024
_ZIP: Final = b"PK\x03\x04"  # no safetensors file begins so: its header would be 64 MiB long
_DIGEST: Final = "sha256:"
_METADATA: Final = "__metadata__"
_FILE_NAME: Final = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8",
    "u8": "U8", "b1": "BOOL",
}  # fmt: skip
_OUR_NAME: Final = {theirs: ours for ours, theirs in _FILE_NAME.items()}
# Dtypes of the format that no tensor of ours has: read, so that a mismatch can name them.
_OTHER: Final = {
    "U16": 2, "U32": 4, "U64": 8, "C64": 8, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a file. ``dtype`` is our name, or the format's where we have none; ``raw`` its bytes."""

    dtype: str
    shape: tuple[int, ...]
    raw: NDArray[np.uint8]

    def array(self) -> NDArray[Any]:
        """The tensor as a read-only view of the file's bytes (bf16 as uint16). KeyError for a dtype not ours."""
        return self.raw.view(numpy_dtype(self.dtype)).reshape(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A whole file. ``verified``: it carries digests and every tensor matches its own."""

    tensors: Mapping[str, FileTensor]
    metadata: Mapping[str, str]
    verified: bool


def encode(
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a file. ``dtypes`` names the dtype of those tensors whose numpy dtype does not say it (bf16)."""
    named = {n: (dtypes or {}).get(n) or name_of(a.dtype) for n, a in tensors.items()}
    texts = dict(metadata or {})
    header: dict[str, Any] = {_METADATA: texts}
    parts: list[bytes] = []
    end = 0
    # The widest first, so that every tensor starts at a multiple of its item size.
    for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
        dtype = named[name]
        if dtype is None:
            raise TypeError(f"{name}: {tensors[name].dtype} has no name in a tensor file")
        raw = np.ascontiguousarray(tensors[name]).tobytes()
        parts.append(raw)
        texts[_DIGEST + name] = hashlib.sha256(raw).hexdigest()
        header[name] = {
            "dtype": _FILE_NAME[dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [end, end + len(raw)],
        }
        end += len(raw)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(
    path: str | os.PathLike[str], *, verify: bool = True, follow: bool = True, dir_fd: int | None = None
) -> TensorFile:
    """Read and check a whole file; tensors are views of one block of memory.

    ``follow=False`` refuses a symbolic link; ``dir_fd`` makes ``path`` relative to an open folder. Raises
    WeightsMissing R304 when there is no such file, ArtifactError R306 for one that cannot be read or is damaged
    (naming the rule and the tensor), OutOfMemory R401 for one larger than the free memory.
    """
    place = os.fspath(path)
    data = _bytes_of(place, follow, dir_fd)
    return decode(data, place, verify=verify)


def decode(data: NDArray[np.uint8], place: str, *, verify: bool = True) -> TensorFile:
    """The file whose bytes are ``data``, u8[n]; ``place`` names it in errors (ArtifactError R306)."""

    def damaged(why: str) -> NoReturn:
        raise ArtifactError("R306", why, place=place, help="copy the file again from where it came, or train again")

    if data[:4].tobytes() == _ZIP:
        raise ArtifactError(
            "R306",
            "this is a zip file, as PyTorch's .pt and numpy's .npz are, not safetensors",
            place=place,
            help="write the weights with safetensors: safetensors.torch.save_file(model.state_dict(), PATH)",
        )
    if data.size < 8:
        damaged(f"a tensor file has at least 8 bytes, this one {data.size}")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > _LONGEST_HEADER or 8 + length > data.size:
        damaged(f"its header would be {length} bytes long")
    header = _json_object(data[8 : 8 + length].tobytes(), damaged)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        damaged("its metadata is not a table of text")
    body = data[8 + length :]
    body.flags.writeable = False
    tensors: dict[str, FileTensor] = {}
    spans: list[tuple[int, int]] = [(0, 0)]
    for name, entry in header.items():
        tensor, span = _entry(name, entry, body, damaged)
        tensors[name] = tensor
        spans.append(span)
    spans.sort()
    if any(a[1] != b[0] for a, b in pairwise(spans)) or spans[-1][1] != body.size:
        damaged("its tensors overlap, leave holes, or do not end with the file")
    digests = {k.removeprefix(_DIGEST): v for k, v in metadata.items() if k.startswith(_DIGEST)}
    if verify and digests:
        for name, tensor in tensors.items():
            have = hashlib.sha256(tensor.raw.data).hexdigest()
            if digests.get(name) != have:
                damaged(f"tensor {name!r} has SHA-256 {have}, the file says {digests.get(name, 'nothing')[:64]}")
    texts = {k: v for k, v in metadata.items() if not k.startswith(_DIGEST)}
    return TensorFile(tensors, texts, bool(digests) and verify)


def _entry(name: str, entry: Any, body: NDArray[np.uint8], damaged: Any) -> tuple[FileTensor, tuple[int, int]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        damaged(f"the entry of tensor {name[:80]!r} is malformed")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        damaged(f"the entry of tensor {name[:80]!r} is malformed")
    start, end = offsets
    ours = _OUR_NAME.get(dtype)
    itemsize = ITEMSIZE[ours] if ours is not None else _OTHER.get(dtype)
    if itemsize is None:
        damaged(f"tensor {name[:80]!r} has the dtype {dtype[:16]!r}, which is not known")
    if not start <= end <= body.size or end - start != prod(shape) * itemsize:
        damaged(f"tensor {name[:80]!r} lies at {start}..{end}, which does not fit its shape or the file")
    raw = body[start:end]
    if ours == "b1" and raw.size and int(raw.max()) > 1:
        damaged(f"tensor {name[:80]!r} holds a truth value that is neither 0 nor 1")
    return FileTensor(ours or dtype, tuple(shape), raw), (start, end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _json_object(text: bytes, damaged: Any) -> dict[str, Any]:
    def pairs(listed: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(listed)
        if len(table) != len(listed):
            raise ValueError("a name stands twice")
        return table

    def constant(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number of JSON")

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        damaged(f"its header is not JSON: {str(error)[:120]}")
    if not isinstance(value, dict):
        damaged("its header is not a JSON object")
    table: dict[str, Any] = value
    return table


def _bytes_of(place: str, follow: bool, dir_fd: int | None) -> NDArray[np.uint8]:
    # Not blocking: opening a FIFO must not wait for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(place, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        raise WeightsMissing("R304", "there is no such file", place=place, help="check the path") from None
    except (OSError, ValueError) as error:
        raise _unreadable(place, error) from error
    try:
        with os.fdopen(handle, "rb", buffering=0) as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ArtifactError("R306", "it is not a regular file", place=place, help="give a file's path")
            ensure_free(status.st_size, [(os.path.basename(place), status.st_size)])
            data = np.empty(status.st_size, dtype=np.uint8)
            view, done = data.data, 0
            while done < data.size:
                count = file.readinto(view[done:])
                if not count:
                    raise ArtifactError(
                        "R306", f"it ended after {done} of {data.size} bytes", place=place, help="read it again"
                    )
                done += count
    except OSError as error:
        raise _unreadable(place, error) from error
    return data


def _unreadable(place: str, error: Exception) -> ArtifactError:
    return ArtifactError("R306", f"it cannot be read: {error}", place=place, help="check the file and its permissions")
