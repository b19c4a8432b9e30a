"""MNIST's idx files: read as they are, refused when a byte is wrong."""

from __future__ import annotations

import gzip
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import DataError, DslcError, OutOfMemory
from dslc.runtime.data.formats.idx import read_idx
from dslc.runtime.data.source import Source

CODES = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def idx(array: np.ndarray) -> bytes:
    kind = next(k for k in CODES if np.dtype(k) == array.dtype)
    head = bytes([0, 0, CODES[kind], array.ndim]) + b"".join(struct.pack(">I", size) for size in array.shape)
    return head + array.tobytes()


def read(path: Path) -> np.ndarray:
    return read_idx(Source(path, None, path.name))


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("shape", [(5,), (3, 4, 2), (0, 28)])
def test_plain_and_packed_files_give_the_array(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)) % 100).reshape(shape).astype(kind)
    plain, packed = tmp_path / "t10k-images-idx3-ubyte", tmp_path / "x.idx.gz"
    plain.write_bytes(idx(array))
    packed.write_bytes(gzip.compress(idx(array)))
    for path in (plain, packed):
        found = read(path)
        assert found.dtype == np.dtype(kind) and found.shape == shape and np.array_equal(found, array)
    if array.size:
        assert isinstance(read(plain), np.memmap), "a plain file is mapped, not read"


def test_images_and_labels_of_mnist_fit_their_inputs(tmp_path: Path, opened: Any, refused: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4)).astype("u1")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 2, 3, 9, 10], "u1")))
    image = (f"{tmp_path}/train-images-idx3-ubyte.gz", "f32", ("B", 1, 4, 4))
    label = f"{tmp_path}/train-labels-idx1-ubyte"
    data = opened(image=image, label=(label, "i32", ("B",), (0, 11)))
    batch = data.take(np.array([5, 0]))
    assert batch["image"].shape == (2, 1, 4, 4) and batch["image"].dtype == np.float32
    assert np.array_equal(batch["image"][:, 0], images[[5, 0]]) and batch["label"].tolist() == [10, 0]
    error = refused(lambda: opened(image=image, label=(label, "i32", ("B",), (0, 10))))
    assert error.code == "R103" and "record 5: the value 10" in error.message and "10 classes" in error.message
    error = refused(lambda: opened(image=(image[0], "f32", ("B", 4, 2, 2))))
    assert error.code == "R102" and "its shape is [6, 4, 4]" in error.message


def test_a_file_of_eight_axes_and_no_more(tmp_path: Path) -> None:
    for axes in (8, 9):
        array = np.arange(4, dtype="u1").reshape(*[1] * (axes - 1), 4)
        (tmp_path / "x.idx").write_bytes(idx(array))
        if axes == 8:
            assert np.array_equal(read(tmp_path / "x.idx"), array)
        else:
            with pytest.raises(DataError, match="9 axes"):
                read(tmp_path / "x.idx")


GOOD = idx(np.arange(12, dtype=">i4").reshape(3, 4))
FAULTS = {
    "empty": b"",
    "wrong magic": b"\x01" + GOOD[1:],
    "magic of numpy": b"\x93NUMPY" + GOOD,
    "unknown dtype": GOOD[:2] + b"\x0a" + GOOD[3:],
    "no axes": GOOD[:3] + b"\x00" + GOOD[4:],
    "many axes": GOOD[:3] + b"\xff" + GOOD[4:] + bytes(2000),
    "truncated header": GOOD[:9],
    "truncated data": GOOD[:-1],
    "data too long": GOOD + b"\0",
    "large shape": GOOD[:4] + b"\0\x10\0\0" * 2 + GOOD[12:],
    "huge shape": GOOD[:4] + b"\xff" * 8 + GOOD[12:],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", FAULTS)
def test_damaged_files_are_refused_fast_and_small(
    tmp_path: Path, case: str, packed: bool, refused: Any, allowed: Callable[[float, float], bool]
) -> None:
    path = tmp_path / ("x.idx.gz" if packed else "x.idx")
    path.write_bytes(gzip.compress(FAULTS[case]) if packed else FAULTS[case])
    tracemalloc.start()
    begun = time.process_time()
    with pytest.raises(DslcError) as caught:
        read(path)
    assert allowed(time.process_time() - begun, 2) and tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    bomb = packed and case == "large shape"
    assert caught.value.code == ("R401" if bomb else "R101"), caught.value.render()
    assert isinstance(caught.value, OutOfMemory if bomb else DataError) and caught.value.help


def test_a_damaged_gzip_never_gives_other_values(tmp_path: Path, fuzz_count: Any, fuzz_seed: int) -> None:
    array = np.random.default_rng(fuzz_seed).integers(0, 9, 60).astype("u1")
    data = gzip.compress(idx(array), mtime=0)
    path = tmp_path / "x.idx.gz"
    rng = np.random.default_rng(fuzz_seed)
    refusals = 0

    def attempt(content: bytes) -> None:
        nonlocal refusals
        path.write_bytes(content)
        try:
            found = read(path)
        except DslcError as error:
            assert error.code in ("R101", "R401")
            refusals += 1
        else:
            assert found.tobytes() == array.tobytes()

    for end in range(len(data)):
        attempt(data[:end])
    assert refusals == len(data)
    for _ in range(fuzz_count(3000)):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << rng.integers(8)
        attempt(bytes(flipped))


def test_what_is_no_file(tmp_path: Path, refused: Callable[..., DataError]) -> None:
    assert refused(lambda: read(tmp_path / "missing.idx")).code == "R101"
    (tmp_path / "d.idx").mkdir()
    assert refused(lambda: read(tmp_path / "d.idx")).code == "R101"
