"""Files of named tensors in the safetensors format, with a SHA-256 of each tensor in the metadata.

Format (https://huggingface.co/docs/safetensors): u64 header length, a JSON header ``{name: {dtype, shape,
data_offsets}, "__metadata__": {text: text}}``, then the tensors' little-endian row-major bytes without gaps. The
digest of tensor NAME has the key ``sha256:NAME``. Equal tensors and metadata give equal bytes here; the public
library orders its metadata randomly, but reads these files unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.artifact.dtypes import name_of
from dslc.runtime.session.host_memory import ensure_free
from dslc.runtime.weights.safetensors_header import DIGEST, FILE_NAME, METADATA, Head, header_length, parse_head
from dslc.runtime.weights.shards import is_index, opened_shard, shard_heads
from dslc.runtime.weights.tensor_bytes import FileTensor, check_tensors, head_of, opened, read_tensors, tensors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A complete file. ``verified``: it has digests, and every tensor matches its digest."""

    tensors: Mapping[str, FileTensor]
    metadata: Mapping[str, str]
    verified: bool


def encode(
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a file. ``dtypes`` gives the dtype of tensors whose numpy dtype does not determine it (bf16)."""
    named = {n: (dtypes or {}).get(n) or name_of(a.dtype) for n, a in tensors.items()}
    texts = dict(metadata or {})
    header: dict[str, Any] = {METADATA: texts}
    parts: list[bytes] = []
    end = 0
    # The widest dtype first, so that every tensor starts at a multiple of its item size.
    for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
        dtype = named[name]
        if dtype is None:
            raise TypeError(f"{name}: {tensors[name].dtype} cannot be stored in a tensor file")
        raw = np.ascontiguousarray(tensors[name]).tobytes()
        parts.append(raw)
        texts[DIGEST + name] = hashlib.sha256(raw).hexdigest()
        header[name] = {
            "dtype": FILE_NAME[dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [end, end + len(raw)],
        }
        end += len(raw)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    follow: bool = True,
    dir_fd: int | None = None,
    accept: Callable[[Head], object] | None = None,
    only: Callable[[Head], Collection[str]] | None = None,
) -> TensorFile:
    """Read and check a complete file; the tensors are views of one block of memory.

    ``follow=False`` rejects a symbolic link; ``dir_fd`` makes ``path`` relative to an open folder. ``accept`` is called
    with the head before memory is allocated for the tensors' bytes, and raises to reject them; ``only`` is called after
    it and returns the names of the tensors to read, by default all. Raises WeightsMissing R304 if a file is missing,
    ArtifactError R306 if it is unreadable or damaged (naming the rule and the tensor), OutOfMemory R401 if the tensors
    are larger than the free memory.
    """
    place = os.fspath(path)
    if is_index(place):
        return _read_shards(place, verify=verify, accept=accept, only=only)
    with opened(place, follow=follow, dir_fd=dir_fd) as (file, size):
        head = head_of(file, size, place)
        names = _chosen(head, place, accept, only)
        tensors = read_tensors(file, head, names, place, verify=verify)
    return TensorFile(tensors, head.metadata, bool(head.digests) and verify)


def _read_shards(
    place: str,
    *,
    verify: bool,
    accept: Callable[[Head], object] | None,
    only: Callable[[Head], Collection[str]] | None,
) -> TensorFile:
    heads, whole = shard_heads(place)
    names = _chosen(whole, place, accept, only)
    tensors: dict[str, FileTensor] = {}
    for shard, head in heads.items():
        wanted = [name for name in head.entries if name in names]
        if wanted:
            with opened_shard(shard, head) as file:
                tensors |= read_tensors(file, head, wanted, shard, verify=verify)
    return TensorFile(tensors, whole.metadata, bool(whole.digests) and verify)


def _chosen(
    head: Head,
    place: str,
    accept: Callable[[Head], object] | None,
    only: Callable[[Head], Collection[str]] | None,
) -> Collection[str]:
    """The names of the tensors to read, if there is memory for them."""
    if accept is not None:
        accept(head)
    names = head.entries.keys() if only is None else frozenset(only(head))
    need = sum(head.entries[name].bytes for name in names)
    ensure_free(need, [(os.path.basename(place), need)])
    return names


def read_head(path: str | os.PathLike[str]) -> tuple[Head, bool]:
    """The head of a file, and whether it has digests that all tensors match; raises the errors of ``read``.

    The tensors are read in small parts, so the memory use does not depend on the file's size.
    """
    place = os.fspath(path)
    if is_index(place):
        heads, whole = shard_heads(place)
        for shard, part in heads.items():
            with opened_shard(shard, part) as file:
                check_tensors(file, part, shard)
        return whole, bool(whole.digests)
    with opened(place) as (file, size):
        head = head_of(file, size, place)
        check_tensors(file, head, place)
    return head, bool(head.digests)


def read_metadata(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """The texts of a file, without its tensors and digests; none of an index. Raises the errors of ``read``."""
    place = os.fspath(path)
    if is_index(place):
        return {}
    with opened(place) as (file, size):
        return head_of(file, size, place).metadata


def decode(data: NDArray[np.uint8], place: str, *, verify: bool = True) -> TensorFile:
    """The file whose bytes are ``data``, u8[n]; ``place`` names it in errors (ArtifactError R306)."""
    length = header_length(data[:8].tobytes(), data.size, place)
    head = parse_head(data[8 : 8 + length].tobytes(), data.size - 8 - length, place)
    tensors = tensors_of(head, data[head.body :], place, verify=verify)
    return TensorFile(tensors, head.metadata, bool(head.digests) and verify)
