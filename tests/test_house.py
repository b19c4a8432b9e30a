"""The layout: the floors are imported under their own names only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from places import ROOT

FLOORS = ("dsl", "compiler", "runtime")


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_refuses_to_be_imported_by_its_folders_name(floor: str) -> None:
    ran = subprocess.run([sys.executable, "-c", f"import {floor}"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1 and f"import this package as dslc.{floor}" in ran.stderr
    subprocess.run([sys.executable, "-c", f"import dslc.{floor}"], cwd=ROOT, check=True)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_floors_are_relative_links(floor: str) -> None:
    assert os.readlink(ROOT / "dslc" / floor) == f"../{floor}"
