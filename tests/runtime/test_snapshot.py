"""save_checkpoint and load_checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from line_model import BATCH, FEATURES

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.runtime import tensorfile
from dslc.runtime.session import Session
from dslc.runtime.train.checkpoint import Position, write_checkpoint

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
