"""A loop at run time is a problem with two ways: the kernels of its body, and one kernel for all steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from places import ROOT, with_support
from tuning import planted

from dslc.base.cache import Cache
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.codegen.cuda.recurrent import division
from dslc.compiler.codegen.cuda.variants import RESIDENT
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.choice import OWN, Choice, Choices, Measured
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import scan
from dslc.compiler.lock.choices import Asked
from dslc.compiler.lock.choices import problems as keys_of
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.artifact.plan import Buffer
from dslc.tune import client
from dslc.tune.candidate import Checks, Recipe, pack_candidate, read_candidate, recipe
from dslc.tune.loaded import blocks_of
from dslc.tune.operands import drawn
from dslc.tune.problems import Problem, problems
from dslc.tune.settings import Settings
from dslc.tune.supply import Supply
from dslc.tune.tune import tune

OPTIONS = Options(target="sm_90", precision="bf16")
TEXT = """nn 1
model Net(x: [4, 5, 64]) -> [4, 5, 64] {
  param w: [64, 64] = uniform(0.5)
  param r: [64, 64] = uniform(0.5)
  h = zeros([4, 64])
  scan xt in x along 1 carry h into y { h = tanh(xt @ w + h @ r); yield h }
  return y
}
"""


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    path = tmp_path / "net.nn"
    path.write_text(TEXT)
    return check_file(path)


def loop(found: list[Problem]) -> Problem:
    [each] = [problem for problem in found if problem.node.op is scan]
    return each


def made(problem: Problem, name: str) -> Recipe:
    return made_of(problem.node, name)


def made_of(node: Node, name: str) -> Recipe:
    found = recipe(node, "sm_90", False, Choice(OWN, name))
    assert found is not None
    return found


def test_a_loop_is_a_problem_in_either_form(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    one = problems(checked, OPTIONS, "sm_90")
    monkeypatch.setattr(division, "_TRIP", 1.0)  # seconds: the model prefers the kernels of the body
    several = problems(checked, OPTIONS, "sm_90")
    assert loop(one).key == loop(several).key
    assert loop(one).calls == 1 and loop(several).calls == 0
    assert {p.key for p in one if p.calls} < {p.key for p in several}


def test_both_ways_have_the_same_ports(checked: Checked) -> None:
    problem = loop(problems(checked, OPTIONS, "sm_90"))
    steps, one = made(problem, ""), made(problem, RESIDENT)
    assert steps.operands == one.operands

    def ports(of: Recipe) -> list[tuple[str, tuple[int, ...]]]:
        return [
            (of.plan.buffers[p.buffer].dtype, of.plan.buffers[p.buffer].shape)
            for p in (*of.plan.inputs, *of.plan.outputs)
        ]

    assert ports(steps) == ports(one)


def test_the_container_holds_the_body_once_and_is_read_with_all_steps(checked: Checked) -> None:
    steps = made(loop(problems(checked, OPTIONS, "sm_90")), "")
    read = read_candidate(pack_candidate(steps.plan, steps.operands, ()), "candidate").plan
    assert len(read.instructions) > 4 * len(steps.kernels)  # five steps
    ends = [(port.buffer, read.buffers[port.buffer]) for port in (*read.inputs, *read.outputs)]
    spans = [(b.region, b.offset, b.offset + b.bytes) for _, b in ends]
    spans += [("work", start, end) for start, end in blocks_of(read.buffers)]
    for buffer in read.buffers:
        inside = [
            s for s in spans if s[0] == buffer.region and s[1] <= buffer.offset and buffer.offset + buffer.bytes <= s[2]
        ]
        assert len(inside) == 1, buffer


def test_overlapping_buffers_are_one_block() -> None:
    def work(offset: int, size: int) -> Buffer:
        return Buffer("work", offset, "u8", (size,))

    found = blocks_of([work(512, 100), work(0, 256), work(64, 256), Buffer("io", 0, "u8", (9,)), work(512, 50)])
    assert found == [(0, 320), (512, 612)]


@pytest.mark.parametrize("cell", ["Lstm", "Gru", "Slstm"])
def test_loops_of_cells_and_their_gradients_stay_finite(cell: str, tmp_path: Path) -> None:
    """With the values that a tuning draws, over 1,024 steps; and what the steps yield does not fade."""
    path = tmp_path / "cells.nn"
    path.write_text((ROOT / "benchmarks/cells.nn").read_text().replace("const D = 768", "const D = 48"))
    program, _ = compile_entry(check_file(path, cell), "train_step", {"B": 2}, replace(OPTIONS, precision="f32"))
    loops = [node for node in program.graph.nodes if node.op is scan]
    assert len(loops) == 2
    for node in loops:
        steps = made_of(node, "")
        assert steps.checks == Checks(finite=True)
        values = zip(dict.fromkeys(node.inputs), steps.operands, strict=True)
        given = {v: np.resize(drawn("f32", each, n), v.type.ints) for n, (v, each) in enumerate(values)}
        results = node.op.meaning([given[v] for v in node.inputs], node.attrs)
        assert all(np.isfinite(each).all() and np.abs(each).max() < 1e4 for each in results)
        yielded = next(each for each in results if each.ndim == 3)
        assert np.abs(yielded).mean(axis=(1, 2)).min() > 1e-2


def test_what_a_loop_rounds_its_state_to(checked: Checked) -> None:
    """A product of any 16-bit factors alone is compared by the dtype of its result."""
    for precision in ("bf16", "f16"):
        found = problems(checked, replace(OPTIONS, precision=precision), "sm_90")
        assert made(loop(found), "").checks == Checks(precision, finite=True)
        assert all(made(each, "").checks == Checks() for each in found if each.node.op is not scan)


@pytest.mark.parametrize("faster", ["", RESIDENT])
def test_the_untuned_way_is_the_default(
    checked: Checked, faster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_TRIP", 1e-9 if faster else 1.0)
    problem = loop(problems(checked, OPTIONS, "sm_90"))
    for variants, names in ((True, ["", RESIDENT]), (False, [faster])):
        supply = Supply([problem], "sm_90", Cache(None), tmp_path, variants=variants)
        assert [choice.algorithm for choice, _ in supply._recipes(problem) if choice] == names
        assert supply._plain(problem) == Choice(OWN, faster)


@pytest.mark.slow
def test_a_build_that_obeys_misses_nothing(checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", with_support()["PYTHONPATH"])
    monkeypatch.setenv("DSLC_TEST_BLIND", "1")
    monkeypatch.setattr(client, "WORKER", planted.WORKER)
    found = tune(checked, OPTIONS, Settings(budget=3000.0), Cache(tmp_path / "cache"))
    assert not found.refused and not found.left
    [block] = [block for block in found.blocks if block.key.startswith("scan")]
    assert {way.choice.algorithm for way in (*block.ways, block.default) if way} <= {"", RESIDENT}
    for way in ("", RESIDENT):
        ways = {each.key: each.ways for each in found.blocks} | {block.key: (Measured(Choice(OWN, way), 1e-6),)}
        asked = Asked(ways)
        program, _ = compile_entry(checked, "predict", {}, OPTIONS, choices=replace(Choices(ways), ways=asked))
        assert block.key in asked.keys_asked
        assert (block.key in keys_of([program], "sm_90")) == bool(way)


def test_joined_loops_are_problems_one_by_one(tmp_path: Path) -> None:
    """So a build that obeys the times of single loops asks for no others."""
    path = tmp_path / "both.nn"
    path.write_text(
        "nn 1\nmodel Net(x: [4, 5, 64]) -> [4, 5, 128] {\n"
        "  y, h = x |> gru(64, bidirectional=true) as a\n  return y\n}\n"
    )
    both = check_file(path)
    found = problems(both, OPTIONS, "sm_90")
    keys = {each.key: each.calls for each in found if each.node.op is scan}
    assert [*keys.values()] == [1, 1] and not any(each.node.op is scans for each in found)
    for way in ("", RESIDENT):
        choices = Choices({key: (Measured(Choice(OWN, way), 1e-3),) for key in keys})
        obeying = {p.key: p.calls for p in problems(both, OPTIONS, "sm_90", choices) if p.node.op is scan}
        assert obeying == dict.fromkeys(keys, 1 if way else 0)
