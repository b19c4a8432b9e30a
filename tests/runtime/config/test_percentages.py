"""A fraction of dslc.yaml that was written as a percentage is told the fraction."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import DataError
from dslc.base.words import of_percentage
from dslc.runtime.config.load import load_config


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("data: {split: 10}", "write 0.1"),
        ("start: {least: 50}", "write 0.5"),
        ("data: {augment: {image: [{flip: {p: 50}}]}}", "write 0.5"),
        ("data: {split: 101}", "a number from 0 to 1"),
        ("data: {split: -1}", "a number from 0 to 1"),
        ("train: {stop: {metric: loss, patience: 1, change: -2}}", "a number from 0 to 1e+30"),
    ],
)
def test_of_a_configuration(tmp_path: Path, text: str, help: str) -> None:
    (tmp_path / "dslc.yaml").write_text(f"model: net.nn\n{text}\n")
    with pytest.raises(DataError) as error:
        load_config(tmp_path / "dslc.yaml", {}, {})
    assert help in (error.value.help or "")


def test_what_looks_like_a_percentage() -> None:
    assert of_percentage(2) == "it is a fraction, no percentage: write 0.02"
    assert of_percentage(100) is not None and of_percentage(100, below=True) is None
    assert [of_percentage(value) for value in (1, 1.5, 100.5, -30, float("nan"))] == [None] * 5
