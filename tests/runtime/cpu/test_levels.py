"""The level of the instruction set: the features that Linux lists decide."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cpu import levels
from dslc.runtime.cpu.levels import machine_level

#: LLVM's names of the same features.
LLVM = {"bmi1": "bmi", "abm": "lzcnt", "asimd": "neon", "atomics": "lse"}
V3 = "fpu avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
CASES = {
    ("x86_64", f"flags\t\t: {V3}"): "x86_64_v3",
    ("x86_64", f"processor : 0\nflags : {V4}\nbugs : avx2"): "x86_64_v4",
    ("aarch64", "processor : 0\nFeatures\t: fp asimd evtstrm atomics"): "armv8_2",
    ("x86_64", f"flags : {V3.replace(' fma', '')}"): None,
    ("x86_64", f"bugs : {V4}"): None,  # another line of the file
    ("aarch64", "Features : fp asimd"): None,
    ("riscv64", f"flags : {V4}"): None,
    ("x86_64", ""): None,
}


@pytest.mark.parametrize(("machine", "text"), CASES)
def test_the_best_level_whose_features_are_listed(
    machine: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(text + "\n")
    monkeypatch.setattr(levels, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(levels.platform, "machine", lambda: machine)
    wanted, offered = CASES[machine, text], list(levels.LEVELS)
    if wanted is None:
        with pytest.raises(EnvironmentFault, match="R202"):
            machine_level(offered)
    else:
        assert machine_level(offered) == wanted
        with pytest.raises(EnvironmentFault, match="R202"):
            machine_level([name for name in offered if levels.LEVELS[name][0] != machine])


def test_without_proc_the_cause_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(levels, "_CPUINFO", tmp_path / "cpuinfo")
    with pytest.raises(EnvironmentFault, match=r"(?s)R202.*features of the CPU are unknown.*cpuinfo"):
        machine_level(["x86_64_v3"])


def test_llvm_finds_the_same_features_here() -> None:
    found, listed = llvm.get_host_cpu_features(), levels.cpu_features()
    architecture = levels.platform.machine()
    for wanted, needed in levels.LEVELS.values():
        if wanted == architecture:
            assert {n for n in needed if n in listed} == {n for n in needed if found.get(LLVM.get(n, n), False)}
