"""The pipeline over random graphs and deep nets: the plan computes the graph, a second run changes nothing, bytes are
always the same, depth is no matter. The laws of each pass are in test_pass_laws.py."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from graphs.mlp_step import ALL, mlp_step, plan_bytes
from graphs.plan_execution import executed
from graphs.random_graphs import assert_same_bits, build_for, evaluate, feeds_of, random_graph
from places import with_support

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph, parse_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import pass_name, run_passes


def test_all_passes_keep_every_bit(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for case in range(fuzz_count(300)):
        dtype = rng.choice([DType.F32, DType.F64])
        graph = random_graph(rng, rng.randint(1, 50), dtype)
        build = build_for(graph, precision=Precision(dtype, dtype))
        program, reports = run_passes(Program("predict", {}, graph), build, PIPELINE)
        assert [r.name for r in reports] == [pass_name(p) for p in PIPELINE]
        feeds = feeds_of(graph, case)
        assert_same_bits(evaluate(graph, feeds), executed(program, build, feeds))


def test_a_second_run_changes_nothing(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(200)):
        graph = random_graph(rng, 40)
        build = build_for(graph)
        once, _ = run_passes(Program("predict", {}, graph), build, PIPELINE)
        twice, _ = run_passes(once, build, PIPELINE)
        assert twice.graph is once.graph
        assert twice.schedule == once.schedule and twice.memory == once.memory


def test_the_plan_does_not_depend_on_the_process() -> None:
    script = "import sys; from graphs import mlp_step; sys.stdout.buffer.write(mlp_step.plan_bytes())"
    for hash_seed in ("0", "12345"):
        env = with_support(PYTHONHASHSEED=hash_seed)
        found = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True, cwd="/").stdout
        assert found == plan_bytes()


@pytest.mark.slow
def test_a_deep_net_goes_through_every_pass() -> None:
    layers = 10_000 if os.environ.get("DSLC_SOAK") == "1" else 2_000
    graph, build = mlp_step(layers)
    program, reports = run_passes(Program("train_step", {}, graph), build, ALL)
    for report in reports:
        each = report.seconds / max(report.nodes_before, report.nodes_after) * 1e6
        checked = report.verify_seconds / report.nodes_after * 1e6
        print(f"{report.name:10} {report.nodes_before:7} -> {report.nodes_after:7} nodes, "
              f"{each:6.1f} us a node, verified in {checked:6.1f}")  # fmt: skip
    assert program.memory is not None and not program.memory.moves
    # the values that the backward pass needs, and only a few gradients in addition
    assert program.memory.work_bytes <= program.memory.lower_bound * 1.02
    assert len(plan_of(program).instructions) >= 6 * layers


def test_programs_are_kept_and_runs_may_stop() -> None:
    graph, build = mlp_step(2)
    programs: dict[str, Program] = {}
    program, reports = run_passes(Program("train_step", {}, graph), build, ALL, until="fuse", keep=programs.__setitem__)
    kept = {name: format_graph(each.graph) for name, each in programs.items()}
    assert list(kept) == ["input", "autodiff", "precision", "simplify", "fuse"] and len(reports) == 4
    assert program.schedule is None and kept["fuse"] == format_graph(program.graph)
    assert format_graph(parse_graph(kept["fuse"])) == kept["fuse"]


@pytest.mark.parametrize("layers", [1, 2])
def test_golden_training_step(layers: int, golden: Callable[[str, str], None]) -> None:
    graph, build = mlp_step(layers)
    program, _ = run_passes(Program("train_step", {}, graph), build, ALL)
    assert program.schedule is not None
    golden(f"passes/all_{layers}.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(program.graph)}")
