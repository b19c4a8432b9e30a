"""Measured times change a build: the problems of the changed build are measured, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from places import with_support
from tuning import planted

from dslc.cli.app import run
from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock.find import read_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.tune import client
from dslc.tune import tune as tuning
from dslc.tune.problems import Problem

TEXT = """nn 1
dim B in 1..64 = 32
model Net(x: [B, 8, 12, 12]) -> [B, 5] {
  return x |> conv(16, 3) |> batchnorm |> relu |> conv(16, 3) |> relu |> flatten |> linear(32) |> relu
    |> linear(5)
}
train Net(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }
"""
BUILDS = [(), ("--providers", "vendor"), ("--providers", "vendor", "--precision", "tf32")]
#: Of a contraction with an epilogue; the first changes builds with libraries, the second those without.
TIMES = [1e-6, 9e-6]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", with_support()["PYTHONPATH"])
    monkeypatch.setattr(client, "WORKER", planted.WORKER)
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "compile_comparer", lambda *_: tmp_path / "comparer")
    monkeypatch.setattr("dslc.compiler.lock.table.shipped", Lock)
    path = tmp_path / "net.nn"
    path.write_text(TEXT)
    return path


def plant(monkeypatch: pytest.MonkeyPatch, fused: float) -> list[str]:
    """Contractions with an epilogue take ``fused`` seconds, other problems 2 us; returns the keys in the order in which
    they are measured."""
    asked: list[str] = []

    def tuned(self: Any, supply: object, problem: Problem, waiting: int) -> Block:
        asked.append(problem.key)
        way = Measured(Choice("own"), fused if problem.node.op.name == "contraction" else 2e-6)
        return Block(problem.key, self._gpu, (way,), way)

    monkeypatch.setattr(tuning._Tune, "_tuned", tuned)
    monkeypatch.setattr("dslc.tune.supply.Supply._some", lambda self, problems: None)
    return asked


@pytest.mark.parametrize("fused", TIMES)
@pytest.mark.parametrize("options", BUILDS, ids=["own", "vendor", "tf32"])
def test_the_build_that_obeys_the_lock_misses_nothing(
    options: tuple[str, ...], fused: float, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plant(monkeypatch, fused)
    assert run(["tune", str(file), *options]) == 0
    assert len(asked) == len({*asked}) == len(read_lock(file.parent / "dslc.lock").blocks)
    assert run(["lock", "--check", str(file), "--target", "sm_90", *options]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("options", "fused"), [(BUILDS[0], TIMES[1]), (BUILDS[1], TIMES[0])], ids=["own", "vendor"])
def test_a_locked_build_works(
    options: tuple[str, ...], fused: float, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plant(monkeypatch, fused)
    assert run(["tune", str(file), *options]) == 0 and asked
    monkeypatch.setenv("DSLC_CACHE_DIR", os.environ["DSLC_TEST_CACHE"])  # of compiled kernels
    output = str(file.parent / "build")
    assert run(["build", str(file), "--target", "sm_90", "--locked", *options, "-o", output]) == 0
