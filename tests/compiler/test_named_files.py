"""Files that comments and docstrings name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dslc

ROOT = Path(dslc.__file__).resolve().parents[1]
FOLDERS = ("compiler", "runtime", "dsl", "dslc")
_NAMED = re.compile(r"``((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:py|cuh?))``")


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_that_are_named_exist(folder: str) -> None:
    known = [str(p) for top in (*FOLDERS, "tests", "benchmarks") for p in (ROOT / top).rglob("*.[pc][yu]*")]
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name in _NAMED.findall(path.read_text(encoding="utf-8")):
            assert any(each.endswith(f"/{name}") for each in known), f"{path} names {name}, which is nowhere"
