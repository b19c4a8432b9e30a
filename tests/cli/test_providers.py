"""What ``--providers auto`` means for a GPU: the lock decides, else whether NVIDIA's libraries are installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dslc.base.errors import EnvironmentFault
from dslc.cli.locks import providers
from dslc.cli.locks.find import with_lock
from dslc.cli.locks.providers import decided, installed, needs_line
from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock.find import write_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.options import Options
from dslc.runtime.cuda.libraries import registry

H200 = "NVIDIA H200, 132 SMs, sm_90"
OWN = Measured(Choice("own", "tile=128x64x64/64x32 stages=3 slices=1 split=1"), 1e-6)
LIBRARY = Measured(
    Choice("cublaslt", "id=66"),
    2e-6,
)
GPU = Options(target="sm_90")


def lock(*ways: Measured, gpu: str = H200) -> Lock:
    return Lock((Block("matmul f32[64, 64] f32[64, 64] -> f32[64, 64]", gpu, ways),))


def found(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.setattr(providers, "installed", lambda: there)


def test_without_a_lock_the_installed_libraries_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, True)
    assert decided(GPU, ("sm_90",), None).provider == "vendor"
    assert decided(GPU, ("sm_90",), lock(LIBRARY, gpu="NVIDIA A100, 108 SMs, sm_80")).provider == "vendor"
    found(monkeypatch, False)
    assert decided(GPU, ("sm_90",), None).provider == "auto"


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_decides_on_every_machine(there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found(monkeypatch, there)
    assert decided(GPU, ("sm_90",), lock(OWN)).provider == "auto"
    assert decided(GPU, ("sm_90",), lock(OWN, LIBRARY)).provider == "vendor"
    write_lock(tmp_path / "dslc.lock", lock(LIBRARY))
    for locked in (True, False):
        assert with_lock(replace(GPU, locked=locked), tmp_path).provider == "vendor"
    write_lock(tmp_path / "dslc.lock", lock(LIBRARY, gpu="NVIDIA A100, 108 SMs, sm_80"))
    assert with_lock(replace(GPU, locked=True), tmp_path).provider == "auto"


@pytest.mark.parametrize("provider", ["own", "vendor", "reference"])
def test_a_named_provider_stays(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, provider == "own")
    options = Options(target="cpu,sm_90", provider=provider)
    assert decided(options, ("sm_90",), lock(LIBRARY)) == options


def test_a_build_for_cpus_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(providers, "installed", lambda: pytest.fail("it looks for libraries"))
    assert with_lock(Options(), tmp_path) == Options()


def test_installed_means_that_all_of_them_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def library(there: bool) -> Any:
        def load() -> None:
            if not there:
                raise EnvironmentFault("R205", "it cannot be loaded")

        return lambda: SimpleNamespace(installed=load)

    for first in (True, False):
        for second in (True, False):
            both = {"cublaslt": library(first), "cudnn": library(second)}
            monkeypatch.setattr(registry, "LIBRARIES", both)
            assert installed() == (first and second)


def test_the_build_says_what_its_artifact_needs() -> None:
    [line] = needs_line({"cudnn": 2, "cublaslt": 1}, replace(GPU, provider="vendor"))
    assert "needs cuBLASLt and cuDNN where it runs" in line and "--providers own" in line
    [line] = needs_line({}, GPU)
    assert "not installed here" in line and "pip install 'dslc[vendor]'" in line
    assert not needs_line({}, replace(GPU, provider="own")) and not needs_line({}, Options())
