"""Passes ask for the properties of a target, never for its name, and leave programs as they are without these."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

import pytest
from places import ROOT

from dslc.compiler import cost
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.codegen import targets
from dslc.compiler.codegen.target import Traits
from dslc.compiler.codegen.targets import TARGETS, Row
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import pass_name
from dslc.compiler.pipeline import compile_entry

LENET = ROOT / "tests/models/lenet.nn"
#: Folders and files of the compiler that may name a target: its code generation, the compilers of its code, and the
#: defaults of the data structures below them.
NAMING = ("codegen/", "toolchain/", "lock/", "ir/build.py", "ir/program.py", "cached_build.py", "options.py")
CONDITIONAL = {
    "channels_last", "decompose", "epilogue", "cross_entropy", "small_tensors", "horizontal", "inline",
    "reduction_outputs", "bitmask", "reduction_epilogue", "horizontal_reductions", "recompute_outputs", "slice_reads",
    "transposes", "image_transposes", "half_reads", "half_loops", "after_loops", "attention_views", "library_epilogue",
    "pad_classes", "half_orders", "few_queries", "few_rows_epilogue", "order_rows", "put_rows", "row_bodies",
    "gather_casts", "placed_pads", "together", "joined_slices", "stacked", "replacements", "pieces",
    "partial_windows", "attention_transposes", "known_values", "small_producers", "pad_widths", "wide_rows",
    "loop_tails",
}  # fmt: skip


def _checked() -> Checked:
    return check_file(str(LENET))


def _compiled(checked: Checked, target: str, **options: object) -> dict[str, Program]:
    """The program after each pass of a training step."""
    programs: dict[str, Program] = {}
    asked = Options(**{"target": "sm_90", **options})  # type: ignore[arg-type]
    compile_entry(checked, "train_step", {"B": 16}, asked, target=target, keep=programs.__setitem__)
    return programs


def _changed(programs: dict[str, Program]) -> set[str]:
    """The passes that gave another graph than they got."""
    names = list(programs)
    return {name for before, name in pairwise(names) if programs[before].graph is not programs[name].graph}


def _with_row(monkeypatch: pytest.MonkeyPatch, name: str, row: Row) -> None:
    rows = {**TARGETS, name: row}
    for module in (targets, cost):
        monkeypatch.setattr(module, "TARGETS", rows)
    cost.machine_of.cache_clear()


def _with_plain_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target ``plain``, which has no property but the reference implementations."""
    traits = dataclasses.replace(TARGETS["cpu"].traits, reads_slices=False, reads_any_layout=False)
    assert {f.name for f in dataclasses.fields(Traits) if getattr(traits, f.name) is True} == {"has_reference"}
    _with_row(monkeypatch, "plain", dataclasses.replace(TARGETS["sm_90"], traits=traits))


def test_no_file_of_the_compiler_names_a_target_but_those_that_make_its_code() -> None:
    named = re.compile(rf"\b({'|'.join(TARGETS)})\b|codegen\.(cpu|cuda)\b")
    read = 0
    for path in sorted((ROOT / "compiler").rglob("*.py")):
        place = path.relative_to(ROOT / "compiler").as_posix()
        if not place.startswith(NAMING):
            read += 1
            assert not named.search(path.read_text()), f"{place} names a target: ask for a trait of it"
    assert read > 100


def test_passes_leave_a_target_without_these_properties_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_plain_row(monkeypatch)
    programs = _compiled(_checked(), "plain", provider="reference")
    assert not _changed(programs) & CONDITIONAL
    assert not programs["memory"].streams and not programs["memory"].kernels


def test_without_fusion_no_pass_fuses() -> None:
    changed = _changed(_compiled(_checked(), "sm_90", precision="bf16", fuse=False))
    assert changed & CONDITIONAL <= {"channels_last", "decompose"}


def test_each_conditional_pass_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_plain_row(monkeypatch)
    lifted = [step for step in PIPELINE if hasattr(step, "__wrapped__")]
    assert {pass_name(step) for step in lifted} == CONDITIONAL | {"tf32", "widen_halves"}
    assert all(step.__module__.endswith(f".{pass_name(step)}") for step in lifted), "a pass is named as its file"
    source = compile_entry(_checked(), "train_step", {"B": 16}, Options(target="cpu"), after="simplify")[0]
    program = dataclasses.replace(source, target="sm_90")
    for step in lifted:
        without = "sm_90" if pass_name(step) == "widen_halves" else "plain"
        assert step(program, Build(target=without)) is program
    fusing = [step for step in lifted if pass_name(step) not in ("channels_last", "decompose", "tf32", "widen_halves")]
    for step in fusing:
        assert step(program, Build(target="sm_90", fuse=False)) is program
    [epilogue] = [step for step in lifted if pass_name(step) == "epilogue"]
    assert epilogue(program, Build(target="sm_90", provider="vendor")) is program


def test_a_new_target_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TARGETS["sm_90"]
    made = dataclasses.replace(row, make=lambda _, vendor, level: row.make("sm_90", vendor, level))
    _with_row(monkeypatch, "third", made)
    for options in ({"precision": "bf16", "provider": "vendor"}, {"provider": "own"}, {"precision": "tf32"}):
        checked = _checked()
        one, other = (_compiled(checked, target, **options)["memory"] for target in ("sm_90", "third"))
        assert plan_of(one) == plan_of(other)
