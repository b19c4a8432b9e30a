"""save_checkpoint and load_checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts.line_model import BATCH, FEATURES

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import Position, write_checkpoint
from dslc.runtime.weights import safetensors_file as tensorfile

Open = Callable[..., Session]
X, TARGET = np.ones((BATCH, FEATURES), np.float32), np.arange(BATCH, dtype=np.int32)


def same(a: Session, b: Session) -> bool:
    left, right = a.state_tensors(), b.state_tensors()
    return a.step == b.step and all(np.array_equal(v, right[k]) for k, v in left.items())


def test_training_goes_on_bitwise(open_line: Open, tmp_path: Path) -> None:
    straight, other = open_line(), open_line(seed=9)
    straight.train_step(x=X, target=TARGET)
    straight.save_checkpoint(tmp_path / "c", {"note": "a ✓"})
    straight.train_step(x=X, target=TARGET)
    assert other.load_checkpoint(tmp_path / "c") == {"note": "a ✓"}
    other.train_step(x=X, target=TARGET)
    assert other.step == 2 and same(straight, other)


def test_one_of_dslc_train(open_line: Open, tmp_path: Path) -> None:
    first, second = open_line(), open_line(seed=9)
    first.train_step(x=X, target=TARGET)
    position = Position(1, 0, 1, 0, BATCH, BATCH, "i", "0.1.0")
    write_checkpoint(tmp_path / "c", first.state_tensors(), position)
    assert second.load_checkpoint(tmp_path / "c") == {} and same(first, second)


def test_every_flipped_bit_is_refused_and_changes_nothing(open_line: Open, tmp_path: Path) -> None:
    session, reader = open_line(), open_line(seed=9)
    session.save_checkpoint(tmp_path / "c")
    before = reader.state_tensors()
    data = (tmp_path / "c").read_bytes()
    taken = 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (tmp_path / "d").write_bytes(flipped)
        try:
            reader.load_checkpoint(tmp_path / "d")
        except DslcError as error:
            assert error.code in ("R305", "R306")
            assert all(np.array_equal(v, before[k]) for k, v in reader.state_tensors().items())
        else:  # where a blank of the header became another blank, nothing has changed
            assert same(session, reader)
            reader.restore(before, 0)
            taken += 1
    assert taken < 16


@pytest.mark.parametrize(
    "text",
    [
        '{"step":-1,"extra":{}}', '{"step":9223372036854775808,"extra":{}}', '{"step":1.0,"extra":{}}',
        '{"step":true,"extra":{}}', '{"step":"1","extra":{}}', '{"extra":{}}', '{"step":1}', '{"step":1,"extra":[]}',
        '{"step":1,"extra":{"a":1}}', "[]", "{", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_lie_about_the_step_with_a_right_digest(open_line: Open, tmp_path: Path, text: str) -> None:
    session, other = open_line(), open_line(seed=9)
    session.save_checkpoint(tmp_path / "c")
    file = tensorfile.read(tmp_path / "c")
    key, digest = "dslc.session", "dslc.session.sha256"
    assert json.loads(file.metadata[key]) == {"step": 0, "extra": {}}
    assert file.metadata[digest] == hashlib.sha256(file.metadata[key].encode()).hexdigest()
    tensors = {name: t.array() for name, t in file.tensors.items()}

    def write(text: str) -> None:
        metadata = {key: text, digest: hashlib.sha256(text.encode()).hexdigest()}
        (tmp_path / "d").write_bytes(tensorfile.encode(tensors, metadata))

    write('{"step":9223372036854775807,"extra":{"a":"b"}}')
    assert other.load_checkpoint(tmp_path / "d") == {"a": "b"} and other.step == 2**63 - 1
    before = other.state_tensors()
    write(text)
    with pytest.raises(ArtifactError, match="its step cannot be read") as caught:
        other.load_checkpoint(tmp_path / "d")
    assert caught.value.code == "R306" and other.step == 2**63 - 1
    assert all(np.array_equal(v, before[k]) for k, v in other.state_tensors().items())


@pytest.mark.parametrize("extra", [{"note": 1}, {1: "note"}, {"note": None}, {None: "note"}])
def test_what_goes_along_is_texts(open_line: Open, tmp_path: Path, extra: Any) -> None:
    with pytest.raises(InputError, match="not a string"):
        open_line().save_checkpoint(tmp_path / "c", extra)
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_of_a_training_of_another_model(open_line: Open, tmp_path: Path) -> None:
    session = open_line()
    position = Position(1, 0, 1, 0, BATCH, BATCH, "i", "0.1.0")
    good, before = session.state_tensors(), session.state_tensors()
    for change, said in (
        ({n: v for n, v in good.items() if n != "b"}, "missing: b"),
        ({**good, "more": np.zeros(2, np.float32)}, "extra: more"),
        ({**good, "w": np.zeros((1, 1), np.float32)}, "w"),
    ):
        write_checkpoint(tmp_path / "c", change, position)
        with pytest.raises(ArtifactError, match=said) as caught:
            session.load_checkpoint(tmp_path / "c")
        assert caught.value.code == "R305" and session.step == 0
    assert all(np.array_equal(v, before[k]) for k, v in session.state_tensors().items())


def test_what_is_no_checkpoint(open_line: Open, tmp_path: Path) -> None:
    session = open_line()
    session.weights.save(tmp_path / "weights")
    with pytest.raises(ArtifactError):
        session.load_checkpoint(tmp_path / "weights")
    with pytest.raises(InputError):
        session.save_checkpoint(tmp_path / "c", {"note": 1})  # type: ignore[dict-item]
    assert not (tmp_path / "c").exists()
    session.save_checkpoint(tmp_path / "c")
    file = tensorfile.read(tmp_path / "c")
    fewer = {name: t.array() for name, t in file.tensors.items() if name != "b"}
    (tmp_path / "d").write_bytes(tensorfile.encode(fewer, file.metadata))
    with pytest.raises(ArtifactError, match="missing: b") as caught:
        session.load_checkpoint(tmp_path / "d")
    assert caught.value.code == "R305"
