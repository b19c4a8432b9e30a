"""Tokens: windows of one file, shifted against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import DataError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    np.arange(21, dtype="<u2").tofile(tmp_path / "c.bin")
    return tmp_path / "c.bin"


def test_windows_follow_each_other_and_the_target_is_one_ahead(corpus: Path, opened: Any) -> None:
    data = opened(
        tokens=(f"{corpus}:u16", "i32", ("B", 4), (0, 21)), target=(f"{corpus}:u16+1", "i32", ("B", 4), (0, 21))
    )
    assert data.rows == 5
    batch = data.take(np.array([4, 1]))
    assert batch["tokens"].tolist() == [[16, 17, 18, 19], [4, 5, 6, 7]]
    assert np.array_equal(batch["target"], batch["tokens"] + 1) and batch["target"].dtype == np.int32


def test_a_shift_that_costs_a_window_costs_both(tmp_path: Path, opened: Any) -> None:
    np.arange(20, dtype="<u4").tofile(tmp_path / "c.bin")
    data = opened(a=(f"{tmp_path}/c.bin:u32", "i64", ("B", 4)), b=(f"{tmp_path}/c.bin:u32+1", "i64", ("B", 4)))
    assert data.rows == 4 and data.columns["a"].rows.count == 5


def test_a_file_of_one_window(tmp_path: Path, opened: Any) -> None:
    np.arange(4, dtype="<u2").tofile(tmp_path / "c.bin")
    data = opened(a=(f"{tmp_path}/c.bin:u16", "i32", ("B", 4)))
    assert data.rows == 1 and data.take(np.array([0]))["a"].tolist() == [[0, 1, 2, 3]]
    with pytest.raises(DataError, match="do not fill one window"):
        opened(a=(f"{tmp_path}/c.bin:u16", "i32", ("B", 5)))


def test_windows_may_overlap(corpus: Path, opened: Any) -> None:
    data = opened(a=(f"{corpus}:u16/2+3", "i32", ("B", 4)))
    assert data.rows == 8 and data.take(np.array([0, 7]))["a"].tolist() == [[3, 4, 5, 6], [17, 18, 19, 20]]


def test_a_large_file_is_checked_as_it_is_read(
    corpus: Path, opened: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dslc.runtime.data.formats.tokens.AT_ONCE", 8)
    notes: list[str] = []
    data = opened(tokens=(f"{corpus}:u16", "i32", ("B", 4), (0, 18)), notes=notes)
    assert "checked while they are read" in notes[0]
    assert data.take(np.array([0]))["tokens"].tolist() == [[0, 1, 2, 3]]
    error = refused(lambda: data.take(np.array([1, 4])))
    assert error.code == "R103" and "record 4: the value 18" in error.message and "18 classes" in error.message


@pytest.mark.parametrize(
    ("data", "key", "shape", "code", "says"),
    [
        (bytes(7), "u16", ("B", 2), "R101", "7 bytes are not a multiple of the size of u16"),
        (b"", "u16", ("B", 2), "R106", "0 tokens do not fill"),
        (bytes(8), "u32", ("B", 4), "R106", "2 tokens do not fill one window of 4"),
        (bytes(8), "u16+3", ("B", 2), "R106", "do not fill"),
        (bytes(8), "u16", ("B",), "R102", "windows [T]"),
        (bytes(8), "u16", ("B", 2, 2), "R102", "windows [T]"),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, data: bytes, key: str, shape: Any, code: str, says: str, opened: Any, refused: Any
) -> None:
    (tmp_path / "c.bin").write_bytes(data)
    error = refused(lambda: opened(a=(f"{tmp_path}/c.bin:{key}", "i32", shape)))
    assert error.code == code and says in error.message


def test_the_help_for_tokens_beyond_the_classes(corpus: Path, opened: Any) -> None:
    with pytest.raises(DataError) as caught:
        opened(a=(f"{corpus}:u16", "i32", ("B", 4), (0, 19)))
    assert caught.value.code == "R103" and "as the tokenizer has tokens" in str(caught.value.help)
