"""Commands that build by themselves compile for this machine's CPU only; ``dslc build`` compiles for all CPUs."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import EnvironmentFault
from dslc.cli import progress as progress_module
from dslc.cli.output import Settings
from dslc.cli.progress import build_progress
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.object import compile as object_compile
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cpu import levels as machine
from dslc.runtime.cpu.levels import machine_level

_MODEL = """nn 1
dim B in 1..16 = 4
model Net(x: [B, 6]) -> [B, 3] { return x |> linear(3) }
train Net(t: [B, 3]) { loss = mse(output, t); optimizer = sgd(lr=0.1) }
"""
_CONFIG = """model: net.nn
build: {sizes: {train: {B: 4}}%s}
data: {train: {x: data.npz:x, t: data.npz:t}}
train: {epochs: 1, seed: 0}
"""
NATIVE = machine_level(LEVELS)

Command = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.nn").write_text(_MODEL)
    (tmp_path / "dslc.yaml").write_text(_CONFIG % "")
    np.savez(tmp_path / "data.npz", x=np.ones((8, 6), "f4"), t=np.ones((8, 3), "f4"))
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "build" / "net" / "net.dslc"


def levels_in(path: Path) -> list[str]:
    return [name.removeprefix("code.") for name in read_artifact(path).blobs("object")]


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, str]]]:
    """How often this process compiled each kernel for each level."""
    found: Counter[tuple[str, str]] = Counter()
    original = object_compile.compiled

    def compiled(texts: dict[str, object_compile.Text], levels: Sequence[str] = tuple(LEVELS)) -> dict[str, bytes]:
        found.update((texts[level].ir, level) for level in levels)
        return original(texts, levels)

    monkeypatch.setattr(object_compile, "compiled", compiled)
    original_init = KernelCompiler.__init__
    monkeypatch.setattr(
        KernelCompiler, "__init__", lambda self, cache, progress=None: original_init(self, cache, progress, processes=1)
    )
    yield found


def test_train_compiles_each_kernel_once_and_for_this_level_only(
    project: Path, dslc: Command, generated: Counter[tuple[str, str]]
) -> None:
    ran = dslc("train")
    assert ran.code == 0, ran.err
    assert f"for {NATIVE} only (`dslc build`: for all CPUs)" in ran.err
    assert {level for _, level in generated} == {NATIVE}
    assert len(generated) > 5 and set(generated.values()) == {1}
    assert levels_in(project) == [NATIVE] and read_artifact(project).header["options"]["cpu"] == NATIVE
    generated.clear()
    assert dslc("train").code == 0 and dslc("eval", "--data", "x=data.npz:x").code in (0, 2)
    assert not generated  # the artifact is taken as it is
    info = dslc("info").out
    assert f"CPU code   {NATIVE}\n" in info and f"cpu={NATIVE}" in info
    assert dslc("verify", project, "--rebuild", "net.nn").code == 0


def test_a_build_ships_every_level_and_train_takes_it(
    project: Path, dslc: Command, generated: Counter[tuple[str, str]]
) -> None:
    assert dslc("train").code == 0
    weights = project.with_suffix(".safetensors").read_bytes()
    alone = bytes(read_artifact(project).blob(f"code.{NATIVE}"))
    assert dslc("build").code == 0
    assert bytes(read_artifact(project).blob(f"code.{NATIVE}")) == alone  # so the results have the same bits
    assert levels_in(project) == list(LEVELS) and "cpu" not in read_artifact(project).header["options"]
    assert project.with_suffix(".safetensors").read_bytes() == weights
    generated.clear()
    assert dslc("train").code == 0
    assert not generated and levels_in(project) == list(LEVELS)


def test_every_level_that_reads_its_name_has_equal_objects_alone() -> None:
    """A contraction's text depends on the level; with one lane, equal texts of several levels share the optimiser."""
    from dslc.compiler.codegen.cpu.contraction.matmul import Matmul
    from dslc.compiler.codegen.launch import SizeGeneric
    from dslc.compiler.ir.types import DType
    from dslc.compiler.toolchain.bundle import unbundle

    for n in (1, 3, 40):
        for step in Matmul(DType.F32, (20, 9), (9, n), False, False).steps().steps:
            code = step.kernel.code if isinstance(step.kernel, SizeGeneric) else step.kernel
            whole = unbundle(object_compile.kernel_code("k_0", code))
            for level in LEVELS:
                assert unbundle(object_compile.kernel_code("k_0", code, level)) == {level: whole[level]}


def test_the_configuration_decides(project: Path, dslc: Command) -> None:
    Path("dslc.yaml").write_text(_CONFIG % ", cpu: all")
    ran = dslc("train")
    assert ran.code == 0 and levels_in(project) == list(LEVELS) and "only" not in ran.err
    Path("dslc.yaml").write_text(_CONFIG % ", cpu: native")
    assert dslc("build").code == 0 and levels_in(project) == [NATIVE]
    Path("dslc.yaml").write_text(_CONFIG % ", cpu: all")
    ran = dslc("train")
    assert ran.code == 0 and levels_in(project) == list(LEVELS) and "other options (cpu)" in ran.err


def test_an_unknown_level_is_refused(project: Path, dslc: Command) -> None:
    ran = dslc("build", "--cpu", "x86_64_v9")
    assert ran.code != 0 and "E0603" in ran.err and "x86_64_v4" in ran.err
    Path("dslc.yaml").write_text(_CONFIG % ", cpu: 4")
    assert "E0603" in dslc("train").err


def test_reference_code_runs_everywhere(project: Path, dslc: Command) -> None:
    Path("dslc.yaml").write_text(_CONFIG % ", providers: reference")
    assert dslc("train").code == 0
    assert "cpu" not in read_artifact(project).header["options"] and levels_in(project) == []


def test_another_machine_builds_again_and_a_foreign_load_says_how(
    project: Path, dslc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "x86_64_v3" if NATIVE != "x86_64_v3" else "x86_64_v4"
    assert dslc("build", "--cpu", other).code == 0
    with monkeypatch.context() as lesser:  # as if this machine ran its own level alone
        lesser.setattr(machine, "LEVELS", {NATIVE: machine.LEVELS[NATIVE]})
        with pytest.raises(EnvironmentFault, match="R202") as caught:
            machine_level([other])
        assert "dslc build" in str(caught.value.help)
        ran = dslc("predict", "data.npz:x", "-o", "out.npz", "--weights", "init")
    assert levels_in(project) == [NATIVE] and "other options (cpu)" in ran.err


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def _said(monkeypatch: pytest.MonkeyPatch, *, json: bool = False, terminal: bool = False) -> str:
    """Written during a build whose kernels take 0.4 seconds each, by a clock that only these calls move."""
    stream, now = _Stream(terminal), [100.0]
    monkeypatch.setattr(progress_module, "settings", lambda: Settings(json=json))
    monkeypatch.setattr(progress_module.sys, "stderr", stream)
    with build_progress(lambda: now[0]) as show:
        for done in range(41):
            if show is not None:
                show("train_step B=4" if done < 14 else "kernels", done, 40)
            now[0] += 0.4
    return stream.getvalue()


def test_a_pipe_gets_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _said(monkeypatch).splitlines() == [
        "building train_step B=4 13/40, 5 s",
        "compiling kernels 26/40, 10 s",
        "compiling kernels 39/40, 16 s",
    ]
    assert _said(monkeypatch, json=True) == ""
    assert "\n" not in _said(monkeypatch, terminal=True)
