"""Amounts of memory: the same units on the command line, in `dslc.yaml` and in models."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import DataError
from dslc.base.words import BYTE_UNITS
from dslc.cli.options import byte_count, sizes_by_entry
from dslc.cli.settings import merged_sizes
from dslc.compiler.check.model import check_file

MODEL = "nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 4]) -> [B, 4] { return x |> linear(4) }\n"


@pytest.mark.parametrize("unit", BYTE_UNITS)
def test_a_unit_means_the_same_everywhere(unit: str, tmp_path: Path) -> None:
    (tmp_path / "m.nn").write_text(f"{MODEL}budget {{ memory = 700 {unit} }}\n")
    assert check_file(str(tmp_path / "m.nn")).budget == 700 * BYTE_UNITS[unit] == byte_count(f"700{unit}")
    assert byte_count(f"0.5 {unit}") == BYTE_UNITS[unit] // 2


@pytest.mark.parametrize("text", ["", "700", "MB", "700 mb", "700 Mb", "7e2 MB", "-1 MB", "1 MBB", "700  MB", "７ MB"])
def test_what_is_no_amount(text: str) -> None:
    assert byte_count(text) is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"S": 160}, {"train": {"S": 160}}),
        ({"S": [8, 16]}, {"eval": {"S": [8, 16]}, "predict": {"S": [8, 16]}}),
        ({"S": [8]}, {"train": {"S": [8]}}),
        ({"predict": {"B": [1, 8], "S": 96}, "S": 160}, {"train": {"S": 160}, "predict": {"B": [1, 8], "S": 96}}),
        ({"S": 160, "train": {"B": 4, "S": 128}}, {"train": {"B": 4, "S": 128}}),
        ({"train": 8}, {"train": 8}),
    ],
)
def test_a_dim_without_an_entry_is_a_size_of_all(written: dict, meant: dict) -> None:
    assert sizes_by_entry(written) == meant


def test_a_flag_adds_to_the_sizes_of_the_file() -> None:
    assert merged_sizes({"S": 160, "predict": {"B": [1, 8]}}, {"": {"B": [4]}}) == {"train": {"S": 160, "B": 4}}
    assert merged_sizes({"S": 160}, {"": {"S": [96]}}) == {"train": {"S": 96}}
    for wrong in ({"train": 8}, [8]):  # not left out in silence
        with pytest.raises(DataError, match="R104"):
            merged_sizes(wrong, {"": {"B": [4]}})
