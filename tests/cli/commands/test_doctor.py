"""``dslc doctor``: what it says of machines that have all, lack something, or hold a library that ends its process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_libraries import FakeCudnn

from dslc.cli.app import run
from dslc.cli.doctor import machine as report
from dslc.cli.doctor import probes
from dslc.cli.doctor.machine import Ability, Demands, examine
from dslc.runtime.cuda.libraries import cublaslt, cudnn

ALL: Mapping[str, Mapping[str, Any]] = {
    "compile": {"numba": 5000, "nvrtc": 3000},
    "gpus": {
        "cuda": 13000,
        "libcuda": "/usr/lib/libcuda.so.1",
        "gpus": [{"index": 0, "name": "NVIDIA H200", "capability": [9, 0], "bytes": 150109880320}],
    },
    "cublaslt": {"version": "13.1.0", "where": "/opt/libcublasLt.so.13", "packages": {}},
    "cudnn": {
        "version": "9.19.0",
        "where": "/opt/libcudnn.so.9",
        "packages": {"nvidia-cudnn-frontend": "1.28.0"},
    },
}


def abilities(demands: Demands = Demands(), **answers: Mapping[str, Any]) -> list[Ability]:  # noqa: B008
    return examine(lambda name: {**ALL, **answers}[name], demands)[1]


def command(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capfd.readouterr()
    code = run(["doctor", *args])
    return code, capfd.readouterr().out


def test_a_machine_that_has_all() -> None:
    facts, found = examine(lambda name: ALL[name], Demands(("cpu", "sm_90"), True, 0))
    assert all(a.why is None and a.asked for a in found) and len(found) == 4
    shown = {(f.section, f.name): (f.value, f.where) for f in facts}
    assert shown["GPUs", "gpu:0"] == ("NVIDIA H200, sm_90, 140 GiB", None)
    assert shown["GPUs", "driver"] == ("CUDA 13.0", "/usr/lib/libcuda.so.1")
    assert shown["vendor's libraries", "cuDNN"] == ("9.19.0", "/opt/libcudnn.so.9")
    assert shown["vendor's libraries", "nvidia-cudnn-frontend"] == ("1.28.0", None)


def test_what_is_missing_is_named_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_installed", lambda name: "1")  # whatever this machine has
    broken = {"error": "cuDNN cannot be loaded: no such file", "help": None}
    *_, running, vendor = abilities(cudnn=broken)
    assert running.why is None and vendor.why == broken["error"] and vendor.help == "pip install 'dslc[vendor]'"

    *_, running, vendor = abilities(gpus={"error": "no NVIDIA driver was found", "help": None})
    assert running.why == vendor.why == "no NVIDIA driver was found" and "580 or newer" in str(running.help)

    none = {**ALL["gpus"], "gpus": []}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert abilities(gpus=none)[2].why == "the driver shows no GPU"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert abilities(gpus=none)[2].help == "unset CUDA_VISIBLE_DEVICES"
    assert abilities(Demands(gpu=3))[2].why == "there is no GPU 3: there are 1"

    no_compiler = {"error": "ModuleNotFoundError: no module", "help": None}
    assert "--force-reinstall" in str(abilities(compile=no_compiler)[1].help)
    monkeypatch.setattr(report, "_installed", lambda name: None if name == "nvidia-nvvm" else "1")
    building = abilities(compile=no_compiler)[1]
    assert building.why == "nvidia-nvvm is not installed" and building.help == "pip install 'dslc[cuda]'"


def test_a_cpu_that_runs_no_kernels(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(probes, "ask", lambda name: ALL[name])
    monkeypatch.setattr("dslc.runtime.cpu.objects.platform.machine", lambda: "riscv64")
    code, out = command(capfd)
    assert code == 4 and "this riscv64 cannot run" in out and "--providers reference" in out


def test_the_exit_code_is_about_what_was_demanded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probes, "ask", lambda name: ALL[name] if name == "compile" else {"error": "x", "help": None})
    assert command(capfd)[0] == 0
    code, out = command(capfd, "--json", "--target", "sm_90")
    data = json.loads(out)
    assert code == 0 and data["sound"] and [a["works"] for a in data["abilities"]] == [True, True, False, False]
    for args in (["--providers", "vendor"], ["--device", "gpu"]):
        code, out = command(capfd, "--json", *args)
        assert code == 4 and not json.loads(out)["sound"]
    assert "does not work: run on a GPU\n  x\n  = help: " in command(capfd)[1]
    for args in (["--target", "sm_91"], ["--providers", "all"]):
        assert command(capfd, *args)[0] == 2
    assert command(capfd, "--device", "tpu")[0] == 3


def test_the_probes_read_driver_and_libraries(
    machine: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = machine(devices=2, total=3 << 30)
    found = probes.answer("gpus")
    assert [g["index"] for g in found["gpus"]] == [0, 1] and found["cuda"] == 13000
    assert found["gpus"][1] == {"index": 1, "name": "Fake GPU", "capability": [9, 0], "bytes": 3 << 30}
    assert not fake.retained, "no context is made"
    dnn = FakeCudnn(fake)
    monkeypatch.setattr(probes, "_mapped", lambda name: None)  # an earlier test may have loaded the real ones
    monkeypatch.setattr(cublaslt, "load_cublaslt", lambda: SimpleNamespace(cublasLtGetVersion=lambda: 130100))
    monkeypatch.setattr(cudnn, "load_cudnn", lambda: dnn)
    assert probes.answer("cublaslt")["version"] == "13.1.0"
    packages = {"nvidia-cudnn-frontend": "1.28.0"}
    assert probes.answer("cudnn") == {"version": "9.19.0", "where": None, "packages": packages}
    fake.dead = 700
    assert "the GPU is lost" in probes.answer("gpus")["error"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import sys; sys.exit('libcublasLt.so.13: cannot open')", "code 1: libcublasLt.so.13: cannot open"),
        ("import time; time.sleep(600)", "did not return within 1 s"),
        ("print('a banner'); print('{\"version\": \"1\"}')", None),
    ],
)
def test_a_library_that_ends_or_holds_up_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str | None
) -> None:
    python = tmp_path / "python"
    (tmp_path / "code.py").write_text(code)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/code.py\n")
    python.chmod(0o700)
    monkeypatch.setattr(probes.sys, "executable", str(python))
    begun = time.monotonic()
    found = probes.ask("cudnn", timeout=1 if "sleep" in code else 60)  # a busy machine starts a process slowly
    assert time.monotonic() - begun < 100
    assert found == {"version": "1"} if said is None else said in found["error"]


def test_here(capfd: pytest.CaptureFixture[str]) -> None:
    """On this machine, whatever it has: a report that agrees with itself."""
    code, out = command(capfd, "--json")
    data = json.loads(out)
    works = {a["name"].split(" (")[0]: a["works"] for a in data["abilities"]}
    assert code == 0 and works["build and run for the CPU"]
    assert all(a["works"] or a["help"] for a in data["abilities"])
    assert works["run on a GPU"] == any(f["name"].startswith("gpu:") for f in data["facts"])
