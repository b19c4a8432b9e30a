"""Weights in several files: an index, ``model.safetensors.index.json``, says which file has which tensor.

The index is Hugging Face's: ``{"metadata": {"total_size": 123}, "weight_map": {TENSOR: FILE}}``. Each FILE is a plain
file in the folder of the index. The files must have exactly the tensors that the index gives them. An index may come
from anywhere, so its size and names are checked before a file is opened, and no link is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError, WeightsMissing
from dslc.runtime.weights.safetensors_header import LONGEST_HEADER, MOST_TENSORS, Entry, Head, damaged, json_object
from dslc.runtime.weights.tensor_bytes import fill, head_of, opened

SUFFIX: Final = ".index.json"
SINGLE: Final = "model.safetensors"  # as Hugging Face's `save_pretrained` names it
INDEX: Final = SINGLE + SUFFIX
LONGEST_INDEX: Final = 16 << 20  # bytes
MOST_SHARDS: Final = 1_000
_MOST_HEADERS: Final = 4 * LONGEST_HEADER  # bytes of all files' headers
_MOST_VALUES: Final = 6 * MOST_TENSORS  # in the JSON of an index; a tensor's name and its file count as four
_DEPTH: Final = 2
_LONGEST_FILE_NAME: Final = 255
_HELP: Final = "copy the index and its files again from their origin"


@dataclass(frozen=True)
class Index:
    """``shards``: the names of the tensors in each file. ``total``: their bytes together, if the index says so."""

    shards: Mapping[str, frozenset[str]]
    total: int | None


def is_index(place: str) -> bool:
    return place.endswith(SUFFIX)


def parse_index(text: bytes, place: str) -> Index:
    """ArtifactError R306 for an index that is malformed, too large, or names a file outside of its folder."""
    table = json_object(text, place, "the index", values=_MOST_VALUES, depth=_DEPTH)
    names, metadata = table.get("weight_map"), table.get("metadata", {})
    if not isinstance(names, dict) or not isinstance(metadata, dict):
        damaged(place, "the index has no table `weight_map`, or its metadata is no table")
    if len(names) > MOST_TENSORS:
        damaged(place, f"the index has {len(names)} tensors, more than {MOST_TENSORS}")
    shards: dict[str, set[str]] = {}
    for name, file in names.items():
        shards.setdefault(_file_name(file, place), set()).add(name)
    if not shards or len(shards) > MOST_SHARDS:
        damaged(place, f"the index names {len(shards)} files; it must name 1 to {MOST_SHARDS}")
    return Index({file: frozenset(found) for file, found in sorted(shards.items())}, _total(metadata, place))


def _file_name(file: Any, place: str) -> str:
    """The name, if it is that of a file in the folder of the index."""
    if not isinstance(file, str) or not file.endswith(".safetensors") or len(file) > _LONGEST_FILE_NAME:
        damaged(place, f"the index names {str(file)[:80]!a}, which is not the name of a .safetensors file")
    if "/" in file or "\\" in file or not file.isprintable():
        raise ArtifactError(
            "R306", f"the index names {file[:80]!a}, which is outside of its folder", place=place, help=_HELP
        )
    return file


def _total(metadata: Mapping[str, Any], place: str) -> int | None:
    total = metadata.get("total_size")
    if total is None:
        return None
    if isinstance(total, bool) or not isinstance(total, int | float) or total != total // 1 or total < 0:
        damaged(place, f"the index says `total_size` {str(total)[:40]}, which is no number of bytes")
    return int(total)


def shard_heads(place: str) -> tuple[dict[str, Head], Head]:
    """The head of each file of an index, by its path, and the head of all: its positions are those in the files, and it
    has no metadata. Raises WeightsMissing R304 if a file is missing, ArtifactError R306 if one is damaged, or the index
    is."""
    with opened(place) as (file, size):
        if size > LONGEST_INDEX:
            damaged(place, f"the index has {size:,} bytes, more than {LONGEST_INDEX:,}")
        text = bytearray(size)
        fill(file, memoryview(text), place)
    index = parse_index(bytes(text), place)
    heads, merged = {}, _Merged(index, place)
    for name in index.shards:
        path = os.path.join(os.path.dirname(place), name)
        with _opened(path) as (file, size):
            heads[path] = head_of(file, size, path)
        merged.add(name, heads[path])
    return heads, merged.head()


@contextmanager
def opened_shard(path: str, head: Head) -> Iterator[FileIO]:
    """A file of an index, opened again. ArtifactError R306 if its head has changed."""
    with _opened(path) as (file, size):
        if head_of(file, size, path) != head:
            raise ArtifactError("R306", "it has changed while it was read", place=path, help="read it again")
        yield file


@contextmanager
def _opened(path: str) -> Iterator[tuple[FileIO, int]]:
    try:
        with opened(path, follow=False) as found:
            yield found
    except WeightsMissing as error:
        help = "copy all files that the index names into its folder"
        raise WeightsMissing(
            "R304", "the index names this file, which does not exist", place=path, help=help
        ) from error


class _Merged:
    """The heads of the files of an index, joined one after the other and compared with it."""

    def __init__(self, index: Index, place: str) -> None:
        self._index = index
        self._place = place
        self._headers = 0
        self._of = {name: file for file, names in index.shards.items() for name in names}
        self._entries: dict[str, Entry] = {}
        self._digests: dict[str, str] = {}
        self._all_have_digests = True

    def add(self, file: str, head: Head) -> None:
        """ArtifactError R306 unless the file has exactly the tensors that the index gives it."""
        self._headers += head.body
        if self._headers > _MOST_HEADERS:
            damaged(self._place, f"the headers of its files have more than {_MOST_HEADERS >> 20} MiB")
        for name in head.entries:
            other = self._of.get(name)
            if other != file:
                says = f"in {other!a}" if other is not None else "nowhere"
                self._refuse(f"{file!a} has the tensor {name[:80]!a}; the index has it {says}")
        if lacking := sorted(self._index.shards[file] - head.entries.keys()):
            self._refuse(f"{file!a} lacks the tensor {lacking[0][:80]!a}, which the index says it has")
        self._entries |= head.entries
        self._digests |= head.digests
        self._all_have_digests &= bool(head.digests)

    def head(self) -> Head:
        """All tensors; positions are those in their files. ArtifactError R306 if their bytes are not the total."""
        total = sum(entry.bytes for entry in self._entries.values())
        if self._index.total not in (None, total):
            raise ArtifactError(
                "R306",
                f"the index says `total_size` {self._index.total:,}, its files have {total:,} bytes of tensors",
                place=self._place,
                help="copy the files again; if they are right, delete `total_size` from the index",
            )
        return Head(0, self._entries, {}, self._digests if self._all_have_digests else {})

    def _refuse(self, why: str) -> None:
        raise ArtifactError("R306", why, place=self._place, help=_HELP)


def file_in(folder: Path) -> Path | None:
    """The weights, or their index, in the folder of a model as Hugging Face writes it; None if it has neither."""
    return next((folder / name for name in (INDEX, SINGLE) if (folder / name).is_file()), None)
