"""Scratch memory worked out without kernels is that of the kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslc.base.errors import BuildError
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.select import select
from dslc.compiler.codegen.weigh import weigh
from dslc.compiler.layout import layout_state
from dslc.compiler.options import Options, precision_of
from dslc.compiler.pipeline import build_options, compile_entry, foresee

MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.parametrize("provider", ["own", "vendor"])
@pytest.mark.parametrize("name", ["lenet", "vae", "unet"])
def test_scratch_is_that_of_the_kernels(name: str, provider: str) -> None:
    checked = check_file(f"{MODELS / name}.nn")
    options = Options(target="sm_90", provider=provider)
    sizes = {d.name: d.default for d in checked.dims}
    program, _ = compile_entry(checked, "train_step", sizes, options, after="beside")
    build = build_options(checked, options, layout_state(checked, precision_of(checked, options).params), "sm_90")
    weighed, selected = weigh(program, build), select(program, build)
    assert dict(weighed.scratch) == dict(selected.scratch)
    assert weighed.vendor == selected.vendor == (provider == "vendor")


def test_a_missing_kernel_is_refused_as_by_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check_file(f"{MODELS / 'lenet'}.nn")
    options = Options(target="sm_90")
    sizes = {d.name: d.default for d in checked.dims}
    program, _ = compile_entry(checked, "train_step", sizes, options, after="beside")
    build = build_options(checked, options, layout_state(checked, precision_of(checked, options).params), "sm_90")
    monkeypatch.setattr("dslc.compiler.codegen.weigh._blocks", lambda node, *_: None)
    with pytest.raises(BuildError, match="E0603"):
        weigh(program, build)


def test_what_is_foreseen_is_what_is_compiled() -> None:
    checked = check_file(f"{MODELS / 'vae'}.nn")
    options = Options(target="sm_90")
    sizes = {d.name: d.default for d in checked.dims}
    mirrors = ("never", "auto", 1)
    for mirror, program in zip(mirrors, foresee(checked, "train_step", sizes, options, mirrors)):
        compiled, _ = compile_entry(checked, "train_step", sizes, replace(options, mirror=mirror))
        assert program.memory is not None and compiled.memory is not None
        assert (program.memory.work_bytes, program.mirrored) == (compiled.memory.work_bytes, compiled.mirrored)
    assert program.mirrored is not None, "one byte is not enough"
