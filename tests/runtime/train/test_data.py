"""Data files: what is converted, what is refused before a byte is used, and the order of the rows."""

from __future__ import annotations

import io
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import DataError, DslcError, OutOfMemory
from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.data.formats.arrays import read_array
from dslc.runtime.data.source import Source
from dslc.runtime.train.data import Dataset, shuffled
from dslc.runtime.train.open_dataset import DataSection


def interface(*inputs: Tensor) -> Interface:
    return Interface("m", "M", (Dim("B", 1, 64, 4, True), Dim("T", 1, 9, 3, False)), inputs, (), Train((), {}, 0.1, ()))


def source(path: Path, key: str | None = None) -> Source:
    return Source(path, key, path.name + (f":{key}" if key else ""))


def opened(
    folder: Path, array: Any, dtype: str, shape: tuple[int | str, ...] = ("B",), notes: list[str] | None = None,
    range: tuple[int, int] | None = None, check_finite: bool = True,
) -> np.ndarray:  # fmt: skip
    """The array as the run would get it for an input of this type."""
    np.savez(folder / "d.npz", a=array)
    data = DataSection(
        {"a": source(folder / "d.npz", "a")}, interface(Tensor("a", dtype, shape, range)), {"B": 4, "T": 3},
        "data.train", check_finite=check_finite, notice=(notes if notes is not None else []).append,
    ).open()  # fmt: skip
    if "a" in data.whole:
        return data.whole["a"]
    assert data.columns["a"].fit is None, "checked and converted when it was opened"
    return data.take(np.arange(data.rows))["a"]


def refused(call: Callable[[], object]) -> DataError:
    with pytest.raises(DataError) as caught:
        call()
    assert caught.value.help and caught.value.place
    return caught.value


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        ("f4", "f32"), ("f2", "f32"), ("f4", "f64"), ("f8", "f64"), ("i8", "i32"), ("u1", "i32"), ("i4", "i64"),
        ("i2", "u8"), ("u1", "f32"), ("i8", "f32"), ("?", "b1"), ("u1", "b1"), (">f4", "f32"), (">i8", "i32"),
        ("u2", "u16"), ("u4", "u32"), ("u8", "u64"), ("i8", "u16"), ("u8", "i8"), (">u4", "u64"), ("u8", "f32"),
    ],
)  # fmt: skip
def test_conversions_that_lose_nothing(tmp_path: Path, dtype: str, target: str) -> None:
    array = np.array([0, 1, 1, 0, 1]).astype(dtype)
    notes: list[str] = []
    found = opened(tmp_path, array, target, notes=notes)
    assert found.tolist() == array.tolist() and found.dtype.isnative
    assert not notes


def test_f64_to_f32_is_announced_once(tmp_path: Path) -> None:
    notes: list[str] = []
    found = opened(tmp_path, np.array([0.1, 1e-300]), "f32", notes=notes)
    assert found.dtype == np.float32 and found[0] == np.float32(0.1)
    assert notes == ["data.train.a: d.npz:a is float64 and is rounded to float32"]


@pytest.mark.parametrize(
    ("array", "target", "code", "says"),
    [
        ([1.0, 2.0], "i32", "R102", "float64, expected int32"),
        ([True], "i32", "R102", "bool, expected int32"),
        ([True], "f32", "R102", "bool"),
        ([0, 2**31], "i32", "R103", "record 1: the value 2147483648"),
        ([0, -1], "u8", "R103", "record 1: the value -1"),
        ([0, -1], "u64", "R103", "record 1: the value -1"),
        ([0, 2**16], "u16", "R103", "record 1: the value 65536"),
        ([0, 2**32], "u32", "R103", "uint32 holds 0 to 4294967295"),
        ([0, 2], "b1", "R103", "record 1: the value 2"),
        ([0, 2**24 + 1], "f32", "R103", "exactly up to 16777216"),
        ([0.0, 1e39], "f32", "R103", "too large for float32"),
        ([0.0, np.nan], "f64", "R103", "record 1: the value nan is not finite"),
        ([0.0, -np.inf], "f32", "R103", "is not finite"),
        ([1j], "f32", "R102", "'<c16'"),
        (["a"], "f32", "R102", "'<U1'"),
        ([b"a"], "f32", "R102", "'|S1'"),
    ],
)
def test_conversions_that_lose_something_are_refused(
    tmp_path: Path, array: list[Any], target: str, code: str, says: str
) -> None:
    error = refused(lambda: opened(tmp_path, np.array(array), target))
    assert error.code == code and says in error.message and error.exit_code == 3
    assert "data.train.a" in str(error.place) or "d.npz" in str(error.place)


def test_unsigned_64_bits_out_of_range(tmp_path: Path) -> None:
    assert "18446744073709551615" in refused(lambda: opened(tmp_path, np.array([2**64 - 1], "u8"), "i64")).message


def test_labels_out_of_range_name_record_value_and_classes(tmp_path: Path) -> None:
    labels = np.array([0, 3, 9, 10, 11], "i8")
    error = refused(lambda: opened(tmp_path, labels, "i32", range=(0, 10)))
    assert error.code == "R103"
    assert error.message == "record 3: the value 10 is out of range: `a` has 10 classes, 0 to 9"
    assert opened(tmp_path, labels[:3], "i32", range=(0, 10)).tolist() == [0, 3, 9]


@pytest.mark.parametrize(
    ("labels", "classes", "said"),
    [
        ([1] * 1200, 3, "all 1,200 rows have the class 1, of 0 to 2"),
        ([1, 2, 3], 4, "no row has the class 0: they have 1 to 3, and the model counts from 0 to 3"),
        ([0, 1, 1], 4, None),
        ([0, 0], 1, None),
        ([1], 2, None),
    ],
)
def test_labels_that_may_be_wrong_are_told(tmp_path: Path, labels: list[int], classes: int, said: str | None) -> None:
    for dtype in ("i4", "u1"):  # without and with a conversion
        notes: list[str] = []
        opened(tmp_path, np.array(labels, dtype), "i32", notes=notes, range=(0, classes))
        assert notes == ([] if said is None else [f"data.train.a: d.npz:a: {said}"])
    table = tmp_path / "t.csv"
    table.write_text("a\n" + "".join(f"{each}\n" for each in labels), encoding="utf-8")
    for section, expected in (("data.train", said), ("data.eval", None)):
        notes = []
        model, sizes = interface(Tensor("a", "i32", ("B",), (0, classes))), {"B": 4, "T": 3}
        DataSection({"a": source(table, "a")}, model, sizes, section, check_finite=True, notice=notes.append).open()
        assert notes == ([] if expected is None else [f"data.train.a: t.csv:a: {expected}"])


def test_dense_targets_are_no_labels(tmp_path: Path) -> None:
    notes: list[str] = []
    opened(tmp_path, np.ones((5, 3), "i4"), "i32", ("B", "T"), notes=notes, range=(0, 4))
    assert not notes, "not every mask has every class"


def test_a_check_in_pieces_names_the_right_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.runtime.data.fit._CHUNK", 48)
    array = np.zeros((20, 3), "f4")
    array[13, 2] = np.nan
    error = refused(lambda: opened(tmp_path, array, "f32", ("B", 3)))
    assert "record 13: the value nan" in error.message
    assert np.isnan(opened(tmp_path, array, "f32", ("B", 3), check_finite=False)[13, 2])


def test_a_truth_value_that_is_neither_is_refused(tmp_path: Path) -> None:
    error = refused(lambda: opened(tmp_path, np.array([0, 1, 7], "u1").view("?"), "b1"))
    assert error.code == "R103" and "record 2: the value 7" in error.message


@pytest.mark.parametrize(
    ("array", "shape", "expected"),
    [
        ((5, 3), ("B", 4), "[n, 4] with any n"),
        ((5,), ("B", 4), "[n, 4] with any n"),
        ((5, 4, 1), ("B", 4), "[n, 4] with any n"),
        ((), ("B",), "[n] with any n"),
        ((5, 4), ("B", "T"), "[n, 3] with any n"),
        ((4, 3), ("T", 3), "[3, 3]"),
    ],
)
def test_shapes_that_do_not_fit(
    tmp_path: Path, array: tuple[int, ...], shape: tuple[int | str, ...], expected: str
) -> None:
    error = refused(lambda: opened(tmp_path, np.zeros(array, "f4"), "f32", shape))
    assert error.code == "R102" and error.message == f"its shape is {list(array)}, expected {expected}"


def test_rows_that_differ_no_rows_and_missing_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", a=np.zeros(5, "f4"), b=np.zeros(4, "f4"), none=np.zeros(0, "f4"))
    face = interface(Tensor("a", "f32", ("B",)), Tensor("b", "f32", ("B",)))

    def open_(**keys: str) -> Dataset:
        sources = {name: source(tmp_path / "d.npz", key) for name, key in keys.items()}
        return DataSection(sources, face, {"B": 4}, "data.train", check_finite=True, notice=print).open()

    error = refused(lambda: open_(a="a", b="b"))
    assert error.code == "R102" and "d.npz:a has 5, d.npz:b has 4" in error.message
    assert refused(lambda: open_(a="none", b="none")).code == "R106"
    assert "no data for the input `b`" in refused(lambda: open_(a="a")).message
    error = refused(lambda: open_(a="a", bb="a"))
    assert "no input `bb`" in error.message and error.help == "did you mean `b`?"
    error = refused(lambda: open_(a="x", b="b"))
    assert error.code == "R101" and error.help == "it holds a, b, none"
    assert open_(a="a", b="a").rows == 5


def test_an_input_without_rows_goes_to_every_step_and_a_batch_inside_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", a=np.arange(5, dtype="f4"), table=np.ones((3, 2), "f4"))
    face = interface(Tensor("a", "f32", ("B",)), Tensor("table", "f32", ("T", 2)))
    sources = {name: source(tmp_path / "d.npz", name) for name in ("a", "table")}
    data = DataSection(sources, face, {"B": 4, "T": 3}, "data.train", check_finite=True, notice=print).open()
    taken = data.take(np.array([4, 0]))
    assert taken["a"].tolist() == [4, 0] and taken["table"].shape == (3, 2) and data.batches(4) == 1
    face = interface(Tensor("a", "f32", ("T", "B")))
    error = refused(
        lambda: DataSection(
            {"a": sources["a"]}, face, {"B": 4, "T": 3}, "data.train", check_finite=True, notice=print
        ).open()
    )
    assert "cannot be divided into batches along B" in error.message


# The order


def test_the_order_is_a_permutation_that_depends_on_seed_and_epoch() -> None:
    orders = {(seed, epoch): shuffled(seed, epoch, 100) for seed in (0, 1, 2**63 - 1) for epoch in (0, 1)}
    for order in orders.values():
        assert sorted(order) == list(range(100))
    assert len({tuple(order) for order in orders.values()}) == 6
    assert shuffled(7, 3, 0).tolist() == [] and shuffled(7, 3, 1).tolist() == [0]


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox4x64-10 as Salmon et al. (2011) state it, on Python's ints."""
    mask, x, (k0, k1) = 2**64 - 1, [counter, 0, 0, 0], key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(b >> 64) ^ x[1] ^ k0, b & mask, (a >> 64) ^ x[3] ^ k1, a & mask]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return x


def test_the_order_is_what_the_documentation_says() -> None:
    # numpy counts before it draws: the first block has counter 1.
    keys = [word for counter in range(1, 8) for word in philox(counter, (11, 5))][:25]
    assert shuffled(11, 5, 25).tolist() == sorted(range(25), key=lambda row: (keys[row], row))
    assert shuffled(0, 0, 12).tolist() == GOLDEN


GOLDEN = [0, 2, 11, 9, 1, 8, 5, 4, 3, 10, 6, 7]


# Files


def npy_header(text: str, version: int = 1) -> bytes:
    data = text.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(data)) + data


def plain(descr: str, shape: str, order: str = "False") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


HEADERS = {
    "empty": b"",
    "magic only": b"\x93NUMPY",
    "not an array": b"PK\x03\x04" + b"x" * 100,
    "version 3": b"\x93NUMPY\x03\x00" + b"\x00" * 100,
    "version 9": b"\x93NUMPY\x09\x00" + b"\x00" * 100,
    "no header": b"\x93NUMPY\x01\x00",
    "header of 64 KiB": npy_header(plain("<f4", "(1,)") + " " * 60_000) + b"\x00" * 4,
    "header of 4 GiB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "truncated header": npy_header(plain("<f4", "(1,)"))[:40],
    "not a dict": npy_header("[1, 2]\n"),
    "code": npy_header("__import__('os').system('touch pwned')\n"),
    "code in the shape": npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (exit(),), }\n"),
    "nested": npy_header("(" * 5000),
    "nested shape": npy_header(plain("<f4", "(" * 4000 + ")" * 4000)),
    "a key is missing": npy_header("{'descr': '<f4', 'shape': (1,), }\n"),
    "a key too many": npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}\n"),
    "truncated data": npy_header(plain("<f4", "(4,)")) + b"\x00" * 15,
    "data too long": npy_header(plain("<f4", "(4,)")) + b"\x00" * 17,
    "huge shape": npy_header(plain("<f4", "(1000000000000,)")) + b"\x00" * 16,
    "overflowing shape": npy_header(plain("<f4", "(4294967296, 4294967296, 4)")) + b"\x00" * 16,
    "negative shape": npy_header(plain("<f4", "(-4,)")) + b"\x00" * 16,
    "long numbers": npy_header(plain("<f4", f"({'9' * 5000},)")),
    "forty axes": npy_header(plain("<f4", "(" + "1, " * 40 + ")")) + b"\x00" * 4,
    "a float in the shape": npy_header(plain("<f4", "(4.0,)")) + b"\x00" * 16,
    "structured": npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n") + b"\x00" * 4,
}
DTYPES = ["|O", "O", "<U4", "|S4", "|V4", "<M8[s]", "<m8", "<c8", "<f16", "<i3", "f", "", "os.system", "<f4, <f4"]


@pytest.mark.parametrize("container", ["npy", "npz"])
@pytest.mark.parametrize("case", [*HEADERS, *DTYPES])
def test_hostile_arrays_are_refused_fast_and_small(
    tmp_path: Path, case: str, container: str, allowed: Callable[[float, float], bool]
) -> None:
    data = HEADERS[case] if case in HEADERS else npy_header(plain(case, "(1,)")) + b"\x80\x04." * 8
    path = tmp_path / f"d.{container}"
    if container == "npy":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a.npy", data)
    tracemalloc.start()
    begun = time.process_time()
    error = refused(lambda: read_array(source(path, None if container == "npy" else "a")))
    assert allowed(time.process_time() - begun, 2) and tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert error.code == ("R102" if case in {"structured", *DTYPES} else "R101") and error.exit_code == 3
    assert len(error.message) < 300 and str(path) in str(error.place)


def bomb(path: Path, declared: int) -> None:
    """An .npz whose member decompresses to ``declared`` zeros, a thousandth of that on disk."""
    header = npy_header(plain("|u1", f"({declared},)"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w", force_zip64=True) as member:
        member.write(header)
        for _ in range(declared >> 20):
            member.write(bytes(1 << 20))


def test_a_zip_bomb_is_stopped_by_the_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    bomb(path, 64 << 20)
    assert path.stat().st_size < 1 << 20
    monkeypatch.setattr("dslc.runtime.session.host_memory.available_bytes", lambda: 32 << 20)
    tracemalloc.start()
    with pytest.raises(OutOfMemory) as caught:
        read_array(source(path, "a"))
    assert caught.value.code == "R401" and tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_zip_that_lies_about_its_size(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    np.savez_compressed(good, a=np.arange(1000.0))
    data = good.read_bytes()
    size = struct.pack("<I", 8000 + 128)
    assert data.count(size) >= 1
    for lie in (8000 + 127, 8000 + 129, 2**31):
        path = tmp_path / "lie.npz"
        path.write_bytes(data.replace(size, struct.pack("<I", lie)))
        assert refused(lambda path=path: read_array(source(path, "a"))).code == "R101"


def test_every_truncation_and_flipped_byte_of_an_npz_is_refused_or_harmless(
    tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    rng = np.random.default_rng(fuzz_seed)
    buffer = io.BytesIO()
    array = rng.standard_normal(40).astype("f4")
    np.savez_compressed(buffer, a=array)
    data = buffer.getvalue()
    path = tmp_path / "d.npz"
    same = wrong = 0

    def attempt(content: bytes) -> None:
        nonlocal same, wrong
        path.write_bytes(content)
        try:
            found = read_array(source(path, "a"))
        except DslcError as error:
            assert error.code in ("R101", "R102", "R401")
            wrong += 1
        else:
            assert found.tobytes() == array.tobytes(), "damage reached the data"
            same += 1

    for end in range(len(data)):
        attempt(data[:end])
    assert same == 0
    for _ in range(fuzz_count(5000)):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << rng.integers(8)
        attempt(bytes(flipped))
    assert wrong > len(data)


def test_other_faults_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as file:
        for _ in range(2):
            file.writestr("a.npy", npy_header(plain("<f4", "(1,)")) + bytes(4))
    assert "2 arrays `a`" in refused(lambda: read_array(source(path, "a"))).message
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("train_x.npy", b"")
    error = refused(lambda: read_array(source(path, "trian_x")))
    assert error.help == "did you mean `train_x`?"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", npy_header(plain("<f4", "(1,)")) + bytes(4))
    data = path.read_bytes()
    # The bit that says a member is encrypted, in the central directory and next to the member.
    at = data.index(b"PK\x01\x02")
    path.write_bytes(data[:6] + b"\x01" + data[7 : at + 8] + b"\x01" + data[at + 9 :])
    assert "encrypted" in refused(lambda: read_array(source(path, "a"))).message


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device", "nul"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d.npy"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "nul":
        path = Path("a\0b.npy")
    assert refused(lambda: read_array(source(path))).code == "R101"


def test_good_files_read_as_numpy_reads_them(tmp_path: Path) -> None:
    for array in (
        np.arange(12.0).reshape(3, 4), np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
        np.zeros((0, 3), "f4"), np.array(3, "f2"), np.array([True, False]),
    ):  # fmt: skip
        np.save(tmp_path / "a.npy", array)
        np.savez(tmp_path / "a.npz", x=array)
        np.savez_compressed(tmp_path / "b.npz", x=array)
        for found in (
            read_array(source(tmp_path / "a.npy")),
            read_array(source(tmp_path / "a.npz", "x")),
            read_array(source(tmp_path / "b.npz", "x")),
        ):
            assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)
    np.save(tmp_path / "a.npy", np.zeros(9))
    mapped = read_array(source(tmp_path / "a.npy"))
    assert isinstance(mapped, np.memmap) and not mapped.flags.writeable
