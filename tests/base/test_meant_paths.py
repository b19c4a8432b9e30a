"""A path that leads to no file is told what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.words import NO_STDIN, meant_path
from dslc.runtime.data.names import help_for


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("tarin.csv", "did you mean `train.csv`?"),
        ("Train.CSV", "did you mean `train.csv`?"),
        ("train.csv.gz", "did you mean `train.csv`?"),
        ("other.bin", "check it"),
        ("tram.cs", "check it"),
        ("~/train.csv", "`~` is not replaced here: write the whole path"),
        ("https:/host.org/train.csv", "files are read from disks: download it first, and name the copy"),
    ],
)
def test_the_help_of_a_path(tmp_path: Path, name: str, help: str) -> None:
    (tmp_path / "train.csv").touch()
    (tmp_path / "net.nn").touch()
    assert meant_path(tmp_path / name, "check it") == help


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_what_is_piped_is_not_read(path: str) -> None:
    assert meant_path(path, "check it") == NO_STDIN == help_for(path) == help_for(f"{path}:a,b")


def test_a_suffix_may_be_missing_and_other_files_do_not_count(tmp_path: Path) -> None:
    for name in ("net.nn", "next.txt"):
        (tmp_path / name).touch()
    assert meant_path(tmp_path / "net", "name one", suffix=".nn") == "did you mean `net.nn`?"
    assert meant_path(tmp_path / "next.txz", "name one", suffix=".nn") == "name one"
    assert meant_path(tmp_path / "next.txz", "name one") == "did you mean `next.txt`?"


def test_a_folder_may_be_missing(tmp_path: Path) -> None:
    help = meant_path(tmp_path / "data" / "x.csv", "check it")
    assert help == f"the folder {tmp_path / 'data'} does not exist: check it"
    (tmp_path / "file").touch()
    assert meant_path(tmp_path / "file" / "x.csv", "check it") == "check it", "a file is no folder"
