"""Amounts of memory: the same units on the command line, in `dslc.yaml` and in models."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.words import BYTE_UNITS
from dslc.cli.options import byte_count
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
