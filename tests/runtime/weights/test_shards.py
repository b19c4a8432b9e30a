"""Weights in several files with an index: read like one file; a hostile index is refused before a tensor is read."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from dslc.base.errors import DslcError
from dslc.runtime.session.state import StateTensor
from dslc.runtime.train.run_weights import weights_file
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.matching import read_matched, terms_of
from dslc.runtime.weights.safetensors_header import LONGEST_HEADER, MOST_TENSORS
from dslc.runtime.weights.shards import INDEX, MOST_SHARDS

ONE = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.ones(4, "f4")}
TWO = {"c": np.zeros((3, 3), "f4"), "d": np.arange(1000, dtype="f4")}
FILES = {"model-00001-of-00002.safetensors": ONE, "model-00002-of-00002.safetensors": TWO}
FIRST, SECOND = FILES
WHERE = {name: file for file, tensors in FILES.items() for name in tensors}
TOTAL = sum(array.nbytes for tensors in FILES.values() for array in tensors.values())


def written(folder: Path, where: object = WHERE, metadata: object = None) -> Path:
    for file, tensors in FILES.items():
        (folder / file).write_bytes(safetensors.numpy.save(tensors, {"format": "pt"}))
    path = folder / INDEX
    path.write_text(json.dumps({"metadata": metadata or {"total_size": TOTAL}, "weight_map": where}))
    return path


def test_several_files_are_read_like_one(tmp_path: Path) -> None:
    path = written(tmp_path)
    file = tensorfile.read(path)
    assert file.tensors.keys() == WHERE.keys() and not file.verified
    for name, array in {**ONE, **TWO}.items():
        assert np.array_equal(file.tensors[name].array(), array)
    head, verified = tensorfile.read_head(path)
    assert head.entries.keys() == WHERE.keys() and not verified
    assert weights_file(tmp_path, lambda text: None) == path
    for name, tensors in FILES.items():
        (tmp_path / name).write_bytes(tensorfile.encode(tensors))
    assert tensorfile.read(path).verified and tensorfile.read_head(path)[1]
    (tmp_path / SECOND).write_bytes(tensorfile.encode(TWO)[:-1] + b"\1")
    for reader in (tensorfile.read, tensorfile.read_head):
        with pytest.raises(DslcError, match="has SHA-256") as caught:
            reader(path)
        assert caught.value.place == str(tmp_path / SECOND)


def test_a_folder_of_one_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors.numpy.save(ONE))
    assert weights_file(tmp_path, lambda text: None) == tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    ("files", "help"),
    [
        (["pytorch_model.bin"], "write pytorch_model.bin as safetensors: model.save_pretrained(PATH)"),
        (["adapter.safetensors", "x.pt"], "adapter.safetensors"),
        (["README.md"], "the folder of a run"),
    ],
)
def test_a_folder_without_weights_says_what_it_holds(tmp_path: Path, files: list[str], help: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(DslcError) as caught:
        weights_file(tmp_path, lambda text: None)
    assert caught.value.code == "R304" and help in str(caught.value.help)


def test_only_the_tensors_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    count = 0
    from dslc.runtime.weights import tensor_bytes

    fill = tensor_bytes.fill

    def counted(file: object, view: memoryview, place: str) -> None:
        nonlocal count
        count += len(view) if place == str(tmp_path / SECOND) else 0
        fill(file, view, place)  # type: ignore[arg-type]

    monkeypatch.setattr(tensor_bytes, "fill", counted)
    expected = {n: StateTensor(n, "param", "f32", a.shape, 0) for n, a in {**ONE, "c": TWO["c"]}.items()}
    with pytest.raises(DslcError, match="extra: d"):
        read_matched(path, expected, terms_of({}, [], partial=False))
    file, _, arrays = read_matched(path, expected, terms_of({"d": None}, [], partial=False))
    assert arrays.keys() == {"a", "b", "c"} == file.tensors.keys() and np.array_equal(arrays["c"], TWO["c"])
    assert 0 < count < TWO["d"].nbytes
    count = 0
    few = {n: t for n, t in expected.items() if n in ONE}
    read_matched(path, few, terms_of({"{x:c|d}": None}, [], partial=False))
    heads = count
    assert heads < 1000  # the head only


def _raw(text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / INDEX).write_bytes(text)


def _index(where: object = WHERE, metadata: object = None) -> Callable[[Path], object]:
    return lambda folder: written(folder, where, metadata)


def _shard(change: Callable[[Path], object]) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        written(folder)
        change(folder / SECOND)

    return make


def _linked(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def _twice(path: Path) -> None:
    path.write_bytes(safetensors.numpy.save({**TWO, "a": ONE["a"]}))


def _sparse(folder: Path) -> None:
    with (folder / INDEX).open("wb") as file:
        file.truncate(3 << 30)


HOSTILE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a path above": (_index({**WHERE, "c": "../x.safetensors"}), "R306", "outside of its folder"),
    "an absolute path": (_index({**WHERE, "c": "/etc/x.safetensors"}), "R306", "outside of its folder"),
    "a folder below": (_index({**WHERE, "c": "x/y.safetensors"}), "R306", "outside of its folder"),
    "a backslash": (_index({**WHERE, "c": "..\\x.safetensors"}), "R306", "outside of its folder"),
    "a NUL": (_index({**WHERE, "c": "x\0.safetensors"}), "R306", "outside of its folder"),
    "another suffix": (_index({**WHERE, "c": "/etc/passwd"}), "R306", "not the name of a .safetensors"),
    "an index of itself": (_index({**WHERE, "c": INDEX}), "R306", "not the name of a .safetensors"),
    "a name of 1 MB": (_index({**WHERE, "c": "x" * 1_000_000 + ".safetensors"}), "R306", "not the name"),
    "a number for a file": (_index({**WHERE, "c": 3}), "R306", "not the name"),
    "a list for a table": (_index([1]), "R306", "no table `weight_map`"),
    "no tensors": (_index({}), "R306", "names 0 files"),
    "too many files": (
        _index({str(i): f"{i}.safetensors" for i in range(MOST_SHARDS + 1)}), "R306", f"names {MOST_SHARDS + 1} files"
    ),
    "too many tensors": (
        _index(dict.fromkeys(map(str, range(MOST_TENSORS + 1)), FIRST)), "R306", "more than"
    ),
    "a file that is missing": (_index({**WHERE, "e": "model-3.safetensors"}), "R304", "does not exist"),
    "a tensor that is missing": (_index({**WHERE, "e": SECOND}), "R306", "lacks the tensor 'e'"),
    "a tensor in another file": (_index({**WHERE, "c": FIRST}), "R306", "lacks the tensor 'c'"),
    "a tensor that it does not name": (_index({"a": FIRST, "b": FIRST, "c": SECOND}), "R306", "has it nowhere"),
    "a tensor in two files": (_shard(_twice), "R306", f"the index has it in '{FIRST}'"),
    "a name twice": (
        lambda folder: (written(folder), _raw(b'{"weight_map":{"a":"%s","a":"%s"}}' % ((FIRST.encode(),) * 2))(folder)),
        "R306", "occurs twice",
    ),
    "a total of fewer bytes": (_index(metadata={"total_size": TOTAL - 4}), "R306", "delete `total_size`"),
    "a total that is no number": (_index(metadata={"total_size": "1"}), "R306", "no number of bytes"),
    "a total below zero": (_index(metadata={"total_size": -1}), "R306", "no number of bytes"),
    "a total without end": (_raw(b'{"metadata":{"total_size":1e999},"weight_map":{"a":"a.safetensors"}}'), "R306",
                            "no number of bytes"),
    "metadata of text": (_index(metadata="x"), "R306", "metadata is no table"),
    "a link": (_shard(_linked), "R306", "it is a link"),
    "a FIFO": (_shard(lambda path: (path.unlink(), os.mkfifo(path))), "R306", "not a regular file"),
    "a folder": (_shard(lambda path: (path.unlink(), path.mkdir())), "R306", "not a regular file"),
    "a file cut short": (_shard(lambda path: path.write_bytes(path.read_bytes()[:-1])), "R306", "does not fit"),
    "a header of 3 GiB": (_shard(lambda path: path.write_bytes(struct.pack("<Q", 3 << 30))), "R306", "bytes long"),
    "3 GiB of nothing": (_sparse, "R306", "bytes, more than"),
    "no JSON": (_raw(b"{"), "R306", "the index is"),
    "deep nesting": (_raw(b"[" * 100_000 + b"]" * 100_000), "R306", "nesting is deeper"),
    "millions of brackets": (_raw(b"[" * (8 << 20) + b"]" * (8 << 20)), "R306", "more than"),
    "many texts": (_raw(b'{"weight_map":[' + b'"",' * (5 << 20) + b'""]}'), "R306", "more than"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_refused(tmp_path: Path, name: str, allowed: Callable[[float, float], bool]) -> None:
    make, code, said = HOSTILE[name]
    make(tmp_path)
    for reader in (tensorfile.read, tensorfile.read_head):
        began = time.process_time()
        with pytest.raises(DslcError) as caught:
            reader(tmp_path / INDEX)
        assert allowed(time.process_time() - began, 2)
        assert caught.value.code == code and caught.value.help
        assert said in f"{caught.value.message} {caught.value.help}", caught.value.message
        assert len(caught.value.message) < 400 and caught.value.message.isprintable()


def test_headers_together_are_bounded(tmp_path: Path) -> None:
    """Each header is within its limit, all of them are not."""
    text = b'{"__metadata__":{"a":"' + b"x" * (LONGEST_HEADER - 100) + b'"}}'
    where = {}
    for i in range(6):
        entry = json.dumps({f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
        header = text[:-1] + b"," + entry[1:]
        (tmp_path / f"{i}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        where[f"t{i}"] = f"{i}.safetensors"
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": where}))
    with pytest.raises(DslcError, match="headers of its files have more than 64 MiB"):
        tensorfile.read(tmp_path / INDEX)
