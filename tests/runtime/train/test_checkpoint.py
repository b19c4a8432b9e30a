"""Checkpoints: what is read back, what is refused, what stays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import ArtifactError, DslcError
from dslc.runtime.train.checkpoint import CheckpointStore, Position, first_nonfinite, read_checkpoint, write_checkpoint
from dslc.runtime.weights import safetensors_file as tensorfile

POSITION = Position(
    step=7, epoch=1, batch=1, seed=3, rows=50, batch_size=8, interface="i" * 64, dslc="0.1.0", skipped=1,
    best_step=6, best_value=(0.1).hex(), means={"loss": [(1 / 3).hex(), 1]}, config={"train.epochs": 4, "args.a": [1]},
)  # fmt: skip
TENSORS = {"w": np.arange(6, dtype="f4").reshape(2, 3), "count": np.array(3, "i8"), "mask": np.array([True, False])}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, TENSORS, POSITION)
    found = read_checkpoint(path)
    assert found.position == POSITION
    assert all(found.tensors[n].tobytes() == TENSORS[n].tobytes() for n in TENSORS)
    assert {n: (a.dtype, a.shape) for n, a in found.tensors.items()} == {
        n: (a.dtype, a.shape) for n, a in TENSORS.items()
    }
    before = path.read_bytes()
    write_checkpoint(path, TENSORS, POSITION)
    assert path.read_bytes() == before


def test_the_public_library_reads_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    write_checkpoint(tmp_path / "c.safetensors", TENSORS, POSITION)
    assert np.array_equal(load_file(tmp_path / "c.safetensors")["w"], TENSORS["w"])


def test_every_truncation_and_every_flipped_bit_is_refused(
    tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    rng = np.random.default_rng(fuzz_seed)
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, {"w": np.arange(3, dtype="f4")}, POSITION)
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(ArtifactError):
            read_checkpoint(path)
    accepted = 0
    bits = rng.permutation(8 * len(data))[: fuzz_count(8 * len(data))]
    for bit in bits.tolist():
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = read_checkpoint(path)
        except DslcError as error:
            assert error.code in ("R306", "R401")
        else:
            # What is left are names of metadata that nobody asks for, a tensor's name, or white space of the header:
            # never a value or the position. The session refuses a state with another name.
            accepted += 1
            assert found.position == POSITION
            assert [a.tobytes() for a in found.tensors.values()] == [TENSORS["w"].ravel()[:3].tobytes()]
    assert accepted < len(bits) // 8


def with_position(path: Path, text: str) -> None:
    metadata = {"dslc.position": text, "dslc.position.sha256": hashlib.sha256(text.encode()).hexdigest()}
    path.write_bytes(tensorfile.encode({"w": np.zeros(1, "f4")}, metadata))


BAD: list[tuple[str, Any]] = [
    *((name, value) for name in ("step", "epoch", "batch", "rows", "skipped")
      for value in (-1, 1.5, True, "1", None, 2**63)),
    ("best_step", -1), ("best_step", None), ("best_step", "6"), ("best_step", ""), ("best_value", "high"),
    ("best_value", 0.5), ("interface", 3), ("dslc", None), ("means", []), ("means", {"a": 1}),
    ("means", {"a": ["x", 1]}), ("means", {"a": ["0x1p0", 1.5]}), ("means", {"a": ["0x1p0"]}), ("config", []),
    ("extra", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_malformed_position_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "c.safetensors"
    with_position(path, json.dumps({**json.loads(POSITION.encode()), name: value}))
    with pytest.raises(ArtifactError) as caught:
        read_checkpoint(path)
    assert caught.value.code == "R306" and "position" in caught.value.message


def test_a_position_of_many_characters_is_not_read(tmp_path: Path) -> None:
    path, text = tmp_path / "c.safetensors", POSITION.encode()
    with_position(path, text.ljust(1 << 20))
    assert read_checkpoint(path).position == POSITION
    with_position(path, text.ljust((1 << 20) + 1))
    with pytest.raises(ArtifactError, match="too long"):
        read_checkpoint(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 200_000, "{" * 10, "NaN", " " * (1 << 21), "\ud800"])
def test_a_position_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.safetensors"
    try:
        with_position(path, text)
    except UnicodeEncodeError:
        metadata = {"dslc.position": text, "dslc.position.sha256": "0"}
        path.write_bytes(tensorfile.encode({"w": np.zeros(1, "f4")}, metadata))
    with pytest.raises(ArtifactError) as caught:
        read_checkpoint(path)
    assert caught.value.code == "R306"


def test_a_file_without_position_or_digests(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "c.safetensors"
    path.write_bytes(tensorfile.encode(TENSORS))
    with pytest.raises(ArtifactError):
        read_checkpoint(path)
    text = POSITION.encode()
    save_file(TENSORS, path, {"dslc.position": text, "dslc.position.sha256": hashlib.sha256(text.encode()).hexdigest()})
    with pytest.raises(ArtifactError) as caught:
        read_checkpoint(path)
    assert "no digests" in caught.value.message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_first_nonfinite(bad: float, dtype: str) -> None:
    tensors = {name: np.zeros(4, dtype) for name in ("a", "b", "c")} | {"n": np.array([2**31 - 1], "i4")}
    assert first_nonfinite(tensors) is None
    tensors["a"][2] = tensors["c"][1] = bad
    assert first_nonfinite(tensors) == "a" and first_nonfinite(tensors, ["c", "b"]) == "c"


def test_first_nonfinite_of_bf16_bits() -> None:
    for bits, finite in ((0x7F7F, True), (0x3F80, True), (0x7F80, False), (0xFF80, False), (0x7FC0, False)):
        found = first_nonfinite({"w": np.array([0, bits], "u2")}, dtypes={"w": "bf16"})
        assert (found is None) == finite


def position(step: int, best: int | None = None) -> Position:
    value = None if best is None else (0.5).hex()
    return replace(POSITION, step=step, best_step=best, best_value=value)


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        store.save(TENSORS, position(step, best=2 if step >= 2 else 1))
    assert store.steps() == [4, 3, 2]
    store.save(TENSORS, position(5, best=5))
    assert store.steps() == [5, 4]


def test_nothing_is_dropped_before_the_new_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.save(TENSORS, position(1))
    store.save(TENSORS, position(2))

    def full(*_: object, **__: object) -> None:
        raise ArtifactError("R306", "read back wrong")

    monkeypatch.setattr("dslc.runtime.train.checkpoint.publish_bytes", full)
    with pytest.raises(ArtifactError):
        store.save(TENSORS, position(3))
    assert store.steps() == [2, 1]


def test_what_is_written_is_read_back_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tensorfile.encode

    def careless(*args: Any) -> bytes:  # a planted fault: one bit of the last tensor
        data = bytearray(real(*args))
        data[-1] ^= 1
        return bytes(data)

    monkeypatch.setattr("dslc.runtime.train.checkpoint.tensorfile.encode", careless)
    with pytest.raises(ArtifactError):
        write_checkpoint(tmp_path / "c.safetensors", {"w": np.ones(3, "f4")}, POSITION)
    assert list(tmp_path.iterdir()) == []


def test_newest_passes_over_what_is_damaged_not_finite_or_not_accepted(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=9)
    for step in (1, 2, 3, 4):
        store.save(TENSORS if step != 3 else {**TENSORS, "w": np.array([np.nan], "f4")}, position(step))
    store.path(4).write_bytes(store.path(4).read_bytes()[:-1])
    (store.folder / "step-x.safetensors").write_text("")
    (store.folder / ".dslc-0123456789abcdef.tmp").write_text("")
    warnings: list[str] = []
    found = store.newest(lambda c: "not this one" if c.position.step == 2 else None, warnings.append)
    assert found.position.step == 1 and len(warnings) == 3
    assert "step-0000000004" in warnings[0] and "`w` is not finite" in warnings[1] and "not this one" in warnings[2]
    with pytest.raises(ArtifactError) as caught:
        store.newest(lambda c: "never", warnings.append)
    assert caught.value.code == "R307"


def test_hostile_files_give_an_error_of_ours(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, TENSORS, POSITION)
    data = path.read_bytes()
    for _ in range(fuzz_count(5000)):
        mutated = bytearray(data)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(len(mutated)))
            mutated[at : at + int(rng.integers(0, 9))] = rng.bytes(int(rng.integers(0, 9)))
        path.write_bytes(mutated)
        try:
            read_checkpoint(path)
        except DslcError as error:
            assert error.code in ("R306", "R401")
