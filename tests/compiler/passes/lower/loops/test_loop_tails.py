"""loop_tails: what no later step needs is computed after a loop of single elements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of

from dslc.cli.views.graphs import difference
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.scan import Loop, scan
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.loops import loop_tails as tails
from dslc.compiler.passes.lower.loops.loop_tails import loop_tails
from dslc.compiler.pipeline import compile_entry

SELECTIVE = "h = exp(unsqueeze(d, 2)*a)*h + unsqueeze(d*x, 2)*unsqueeze(n, 1)\n    "
STEPS = {
    "a sum": f"{SELECTIVE}yield sum(h*unsqueeze(n, 1), over=2)",
    "old carries, and values without a carry": f"y = sum(h, over=2)\n    {SELECTIVE}yield d*x + y",
    "products of vectors and states": (
        "k = unsqueeze(x, 2) @ unsqueeze(n, 1)\n    h = sigmoid(unsqueeze(d, 2)*a)*h + k\n"
        "    yield (h @ unsqueeze(n, 2))[:, :, 0]"
    ),
    "keys and values with a bonus": (
        "k = unsqueeze(x, 2) @ unsqueeze(n, 1)\n    y = ((h + a*k) @ unsqueeze(n, 2))[:, :, 0]\n"
        "    h = sigmoid(unsqueeze(d, 2))*h + k\n    yield y"
    ),
    "sums and transposes of the sequences": (
        "h = a*h + unsqueeze(sum(d, over=1, keep=true), 2) + unsqueeze(x, 2)*unsqueeze(n, 1)\n"
        "    yield sum(transpose(h, [0, 2, 1]), over=1)"
    ),
    "values that are the same in all steps": f"{SELECTIVE}yield sum(h, over=2) + stop_gradient(sum(a, over=1))",
}


def graph_of(step: str, folder: Path, entry: str = "train_step") -> Graph:
    (folder / "net.nn").write_text(
        f"nn 1\nconst T = 3\nmodel Net(xs: [2, T, 8], ds: [2, T, 8], ns: [2, T, 4]) -> [2, T, 8] {{\n"
        "  param a: [8, 4] = uniform(1)\n  h = zeros([2, 8, 4])\n"
        f"  scan x, d, n in xs, ds, ns along T carry h into y {{\n    {step}\n  }}\n  return y\n}}\n"
        "train Net(t: [2, T, 8]) {\n  loss = mean(output*t)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    options = Options(target="sm_90", provider="own")
    return compile_entry(check_file(folder / "net.nn"), entry, {}, options, after="after_loops")[0].graph


def sums(graph: Graph) -> list[str]:
    """The ops of loops that sum."""
    nodes = [each for loop in graph.nodes if loop.op is scan for each in Loop.of(loop).graph.nodes]
    return [each.op.name for each in nodes if each.op.name in ("sum", "sum_to", "transpose", "matmul")]


@pytest.mark.parametrize("name", sorted(STEPS))
def test_values_are_kept(name: str, tmp_path: Path, fuzz_seed: int) -> None:
    """But for the order in which they are added."""
    graph = graph_of(STEPS[name], tmp_path)
    found = loop_tails(graph)
    verify_graph(found)
    assert sums(graph) and not sums(found)
    assert loop_tails(found) is found
    feeds = feeds_of(graph, fuzz_seed)
    before, after = evaluate(graph, feeds), evaluate(found, feeds)
    assert before.keys() == after.keys()
    for key, value in before.items():
        np.testing.assert_allclose(after[key], value, rtol=0, atol=1e-12 * max(1.0, np.abs(value).max()), err_msg=key)


def test_a_loop_that_carries_nothing_is_none(tmp_path: Path) -> None:
    graph = graph_of("h = h + 1\n    yield (unsqueeze(x, 1) @ a)[:, 0] @ a.T", tmp_path, entry="predict")
    assert scan in [node.op for node in graph.nodes]
    assert scan not in [node.op for node in loop_tails(graph).live_nodes()]


def test_a_loop_stays_if_its_elements_need_others(tmp_path: Path) -> None:
    graph = graph_of("h = h*a + unsqueeze(x, 2) + mean(h, over=2, keep=true)\n    yield sum(h, over=2)", tmp_path)
    assert sums(graph) and loop_tails(graph) is graph


def test_a_loop_stays_if_its_states_would_take_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(f"{SELECTIVE}yield sum(h*h, over=2)", tmp_path, entry="predict")
    monkeypatch.setattr(tails, "_MOST_BYTES", 3 * 2 * 8 * 4 * 4 - 1)
    assert loop_tails(graph) is graph
    monkeypatch.setattr(tails, "_MOST_BYTES", 3 * 2 * 8 * 4 * 4)
    assert loop_tails(graph) is not graph


def test_no_old_carry_is_copied(tmp_path: Path) -> None:
    """The kernel of such a loop yields it."""
    graph = graph_of(STEPS["a sum"], tmp_path)
    assert "concat" not in [node.op.name for node in graph.nodes]


def test_a_selective_scan(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    with chdir(tmp_path):
        graph = graph_of(STEPS["a sum"], Path(), entry="predict")
    golden("passes/loop_tails.txt", difference(format_graph(graph), format_graph(loop_tails(graph))))
