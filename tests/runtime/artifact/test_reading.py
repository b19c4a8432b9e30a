"""Reading an artifact from a file that gives few bytes at a time, or ends while it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from artifacts.small_artifact import artifact_bytes

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact import container
from dslc.runtime.artifact.file import read_artifact


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_a_file_that_gives_few_bytes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    path = tmp_path / "a.dslc"
    path.write_bytes(artifact_bytes())
    wanted, real = read_artifact(path), os.preadv

    def few(fd: int, buffers: Any, offset: int) -> int:
        return real(fd, [buffers[0][:most]], offset)

    monkeypatch.setattr(container.os, "preadv", few)
    found = read_artifact(path)
    assert found.id == wanted.id and found.header == wanted.header
    assert all(found.blob(b["name"]) == wanted.blob(b["name"]) for b in wanted.header["blobs"])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", [0, 1, 63, 64, 500, -1])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Its size was asked for before: the read ends, and says so."""
    path = tmp_path / "a.dslc"
    path.write_bytes(artifact_bytes())
    size, real = path.stat().st_size, os.preadv

    def cut(fd: int, buffers: Any, offset: int) -> int:
        os.truncate(path, left % size)
        return real(fd, buffers, offset)

    monkeypatch.setattr(container.os, "preadv", cut)
    with pytest.raises(ArtifactError) as caught:
        read_artifact(path)
    assert caught.value.code == "R301"


@pytest.mark.parametrize("name, help", [("net.nn", "dslc build"), ("net.dslc", "build it again")])
def test_a_file_without_the_magic_number(tmp_path: Path, name: str, help: str) -> None:
    (tmp_path / name).write_text("nn 1\n" + "# comment\n" * 20)
    with pytest.raises(ArtifactError, match="magic number") as error:
        read_artifact(tmp_path / name)
    assert help in (error.value.help or "")
