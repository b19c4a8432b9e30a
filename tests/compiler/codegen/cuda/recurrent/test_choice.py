"""A measured choice makes a loop one resident kernel or those of its body; without one, the model of time does."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import BuildError
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.codegen.cuda.recurrent import division
from dslc.compiler.codegen.cuda.variants import RESIDENT
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import format_lock, parse_lock
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.artifact.instructions import Kernel, Loop

GPU = "NVIDIA H200, 132 SMs, sm_90"
NOTHING = {"none": (Measured(Choice("own"), 1.0),)}  # other passes ask whether anything was measured


def checked(folder: Path, step: str = "tanh(xt @ w + h @ r)") -> Checked:
    (folder / "net.nn").write_text(
        "nn 1\nmodel Net(x: [4, 5, 64]) -> [4, 5, 64] {\n  param w: [64, 64] = uniform(0.5)\n"
        "  param r: [64, 64] = uniform(0.5)\n  h = zeros([4, 64])\n"
        f"  scan xt in x along 1 carry h into y {{ h = {step}; yield h }}\n  return y\n}}\n"
        "train Net(t: [4, 5, 64]) {\n  loss = mean(output * t)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    return check_file(folder / "net.nn")


def compiled(of: Checked, ways: dict[str, tuple[Measured, ...]], precision: str = "bf16") -> Program:
    options = Options(target="sm_90", precision=precision, provider="vendor")
    return compile_entry(of, "train_step", {}, options, choices=Choices({**NOTHING, **ways}))[0]


def loops(program: Program) -> list[Node]:
    return [node for node in program.graph.nodes if node.op is scan]


def chosen(program: Program, name: str) -> dict[str, tuple[Measured, ...]]:
    return {key_of(node): (Measured(Choice("own", name), 1e-3),) for node in loops(program)}


def test_a_loop_is_one_kernel_if_a_choice_says_so(tmp_path: Path) -> None:
    of = checked(tmp_path)
    default = compiled(of, {})
    plain = compiled(of, chosen(default, ""))
    assert len(loops(plain)) == len(plain.loops) == 2
    program = compiled(of, chosen(default, RESIDENT))
    assert not program.loops and all(node in program.kernels for node in loops(program))
    plan = plan_of(program)
    assert not any(isinstance(each, Loop) for each in plan.instructions)
    symbols = {launches[-1].symbol for node, launches in program.kernels.items() if node.op is scan}
    assert len(symbols) == sum(isinstance(i, Kernel) and i.symbol in symbols for i in plan.instructions) == 2
    for node in loops(program):
        assert program.memory is not None and node in program.memory.scratch


def test_without_a_choice_the_model_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = checked(tmp_path)
    for precision in ("bf16", "f32", "tf32"):
        default = compiled(of, {}, precision)
        assert not default.loops and len(loops(default)) == 2
    monkeypatch.setattr(division, "_TRIP", 1.0)
    assert len(compiled(of, {}).loops) == len(compiled(of, {}, "f32").loops) == 2


@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_a_choice_takes_a_kernel_whose_products_are_in_f32(precision: str, tmp_path: Path) -> None:
    of = checked(tmp_path)
    program = compiled(of, chosen(compiled(of, {}, precision), RESIDENT), precision)
    assert not program.loops and len(loops(program)) == 2


def test_an_unknown_way(tmp_path: Path) -> None:
    of = checked(tmp_path)
    with pytest.raises(BuildError, match="no such variant"):
        compiled(of, chosen(compiled(of, {}), "tile=1"))


def test_a_loop_of_another_class_is_refused(tmp_path: Path) -> None:
    of = checked(tmp_path)
    with pytest.raises(BuildError, match="factors in f64") as refused:
        compiled(of, chosen(compiled(of, {}, "f64"), RESIDENT), "f64")
    assert refused.value.code == "E0609"


def test_a_lock_keeps_the_choice(tmp_path: Path) -> None:
    ways = chosen(compiled(checked(tmp_path), {}), RESIDENT)
    lock = Lock.of([Block(key, GPU, way) for key, way in ways.items()])
    assert parse_lock(format_lock(lock).encode(), "dslc.lock") == lock


def test_keys_tell_bodies_apart_and_not_places(tmp_path: Path) -> None:
    def keys(step: str) -> list[str]:
        return [key_of(node) for node in loops(compiled(checked(tmp_path, step), {}))]

    one = keys("tanh(xt @ w + h @ r)")
    assert len({*one}) == 2
    assert not {*one} & {*keys("sigmoid(xt @ w + h @ r)")}
    moved = keys("tanh(\n\n    xt @ w + h @ r)")
    assert moved == one
