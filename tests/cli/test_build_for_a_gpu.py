"""Commands that build by themselves build for the GPU that ``--device`` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver

from dslc.base.errors import EnvironmentFault
from dslc.cli.compile import artifact_of
from dslc.cli.output import Settings
from dslc.cli.settings import read_config
from dslc.cli.targets import target_of
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.driver import Driver

_MODEL = """nn 1
dim B in 1..16 = 4
model Net(x: [B, 6]) -> [B, 3] { return x |> linear(3) }
train Net(t: [B, 3]) { loss = mse(output, t); optimizer = sgd(lr=0.1) }
"""
_CONFIG = """model: net.nn
data: {train: {x: data.npz:x, t: data.npz:t}, split: 0.5}
train: {epochs: 1, seed: 0}
"""
Machine = Callable[..., FakeDriver]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.nn").write_text(_MODEL)
    (tmp_path / "dslc.yaml").write_text(_CONFIG)
    np.savez(tmp_path / "data.npz", x=np.ones((8, 6), "f4"), t=np.ones((8, 3), "f4"))
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(device: str = "auto", as_built: bool = False, **build: Any) -> tuple[str, list[str]]:
    """An artifact's digest, and the targets of its programs."""
    given = tuple(f"build.{name}={value}" for name, value in build.items())
    with click.Context(click.Command("train"), obj=Settings()).scope():
        found = artifact_of(read_config(fields=given), device=device, as_built=as_built)
    return found.id, sorted({program.target for program in found.all_programs()})


def test_a_gpu_that_is_named_is_built_for(project: Path, machine: Machine, capfd: Any) -> None:
    machine(capability=(9, 0))
    assert built()[1] == ["cpu"]  # auto is the CPU, unless the project says otherwise
    assert built("gpu:0")[1] == ["cpu", "sm_90"]
    capfd.readouterr()
    assert built("gpu") == built(target="[cpu, sm_90]") == built("gpu", target="[cpu, sm_90]")
    assert "built" not in capfd.readouterr().err


def test_targets_without_a_gpu_are_refused_before_the_build(project: Path, machine: Machine) -> None:
    machine(capability=(9, 0))
    with pytest.raises(EnvironmentFault, match="R202") as caught:
        built("gpu", target="cpu")
    assert caught.value.help == "name both: --target cpu,sm_90, or build: {target: [cpu, sm_90]}"
    assert not (project / "build").exists()


def test_an_artifact_with_code_for_the_gpu_is_used_as_built(project: Path, machine: Machine) -> None:
    """`dslc predict --device gpu`, after a build for more targets than the project names."""
    machine(capability=(9, 0))
    whole = built(target="[cpu, sm_90]")
    assert built("gpu", as_built=True, target="cpu") == whole


def test_without_a_gpu_nothing_is_built(
    project: Path, monkeypatch: pytest.MonkeyPatch, dslc: Callable[..., Any]
) -> None:
    monkeypatch.setattr(devices, "load_driver", no_driver)
    monkeypatch.setattr(devices, "_machine", devices._Machine())
    for command in (("train",), ("predict", "data.npz:x", "-o", "y.npy", "--weights", "init")):
        ran = dslc(*command, "--device", "gpu")
        assert ran.code == 4 and "error[R201]" in ran.err, ran.err
    assert not (project / "build").exists()


def test_the_target_follows_the_device(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, expected in (((9, 0), "sm_90"), ((5, 2), "cpu")):  # the latter is too old for all that we build
        machine(capability=capability)
        assert target_of("auto") == expected and target_of("cpu") == "cpu"
    monkeypatch.setattr(devices, "load_driver", no_driver)
    monkeypatch.setattr(devices, "_machine", devices._Machine())
    assert target_of("auto") == "cpu"
    with pytest.raises(EnvironmentFault, match="no driver"):
        target_of("gpu")


def no_driver() -> Driver:
    raise EnvironmentFault("R201", "no driver")
