"""Running commands in this process, and in one of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.fixtures import machine

__all__ = ["machine"]

_DEEP = """nn 1
dim B in 1..4096 = 512
block wide(x: [B, D]) -> [B, D] { return x |> linear(D) |> gelu }
model M(x: [B, 64]) -> [B, 4] {
  for i in 0..12 { x = x |> wide }
  return x |> linear(4) as head
}
train M(t: [B, 4]) { loss = mse(output, t); optimizer = sgd(lr=0.1) }
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def dslc(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``dslc("check", path)`` runs the command line in this process."""
    from dslc.cli.app import run

    def call(*args: object) -> Ran:
        capfd.readouterr()
        code = run([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def dslc_process() -> Callable[..., Ran]:
    """``dslc_process("check", path)`` runs ``python -m dslc`` in a process of its own."""

    def call(*args: object, cwd: object = None, input: str | None = None) -> Ran:
        found = subprocess.run(
            [sys.executable, "-m", "dslc", *map(str, args)],
            cwd=None if cwd is None else str(cwd),
            input=input,
            capture_output=True,
            text=True,
            timeout=100,
        )
        return Ran(found.returncode, found.stdout, found.stderr)

    return call


@pytest.fixture
def deep_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``net.nn`` in the working folder: a model whose step needs about 3 MiB, which a budget may halve."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(_DEEP)
    return tmp_path / "net.nn"
