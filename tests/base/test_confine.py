"""A confined process cannot take memory or write files; a bare environment holds what Python needs and no secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dslc.base.confine import bare_environment

CONFINED = """
import resource, sys
from dslc.base.confine import confine
confine(64 << 20)
confine(256 << 20)  # a limit is never raised
try:
    bytearray(100 << 20)
    print("more memory")
except MemoryError:
    bytearray(16 << 20)
try:
    with open(sys.argv[1], "w") as file:
        file.write("x")
    print("a file")
except OSError:
    pass
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_limits(tmp_path: Path) -> None:
    """SIGXFSZ is ignored by Python, so the write fails with EFBIG."""
    command = [sys.executable, "-c", CONFINED, str(tmp_path / "file")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert ran.stdout == "(0, 0)\n", ran.stderr
    assert (tmp_path / "file").stat().st_size == 0


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "here")
    monkeypatch.setenv("LD_LIBRARY_PATH", "there")
    found = bare_environment(MORE="1")
    assert "secret" not in found.values() and found["PATH"] == os.environ["PATH"]
    assert (found["PYTHONPATH"], found["LD_LIBRARY_PATH"], found["MORE"]) == ("here", "there", "1")
