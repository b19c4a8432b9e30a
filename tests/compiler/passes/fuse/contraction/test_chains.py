"""chains: the nodes of a token become one chain, which computes the same; other nodes stay where they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import assert_same_bits
from graphs.token_model import chain_of, compiled

from dslc.cli.views.graphs import difference
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.contraction import few_rows
from dslc.compiler.ir.bodies.chain import chained
from dslc.compiler.ir.graph import Graph, Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph, parse_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.contraction.chains import with_chains
from dslc.compiler.pipeline import compile_entry


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", 0)


@pytest.mark.parametrize("provider", ["own", "vendor"])
def test_a_token_is_one_chain(tmp_path: Path, provider: str) -> None:
    program = compiled(tmp_path, layers=3, precision="bf16", provider=provider)
    inner = Counter(node.op.name for node in chained(chain_of(program).attrs).nodes)
    assert inner == {"layernorm": 7, "contraction": 13, "put_rows": 3, "few_queries_sdpa": 3}
    assert len(program.kernels[chain_of(program)]) == 2
    assert sum(len(launches) for launches in program.kernels.values()) < 12


def test_the_numbers_and_the_caches_stay(tmp_path: Path) -> None:
    before, after = (compiled(tmp_path, layers=2, after=name).graph for name in ("prepare", "chains"))
    assert "chain" in {n.op.name for n in after.nodes} - {n.op.name for n in before.nodes}
    verify_graph(after)
    feeds = feeds_of(before, 5)
    assert_same_bits(evaluate(before, feeds), evaluate(after, feeds))
    planned = compiled(tmp_path, layers=2)
    assert planned.memory is not None and not [move for move in planned.memory.moves if "keys" in move.name]


def test_others_stay(tmp_path: Path) -> None:
    for more in ({"target": "sm_80"}, {"tokens": 9}, {"target": "cpu"}):
        program = compiled(tmp_path, **more)  # type: ignore[arg-type]
        assert "chain" not in {node.op.name for node in program.graph.nodes}


def test_few_launches_stay(tmp_path: Path) -> None:
    """Two products are two launches, as a chain of two stages is; a normalisation before each is one launch more."""
    for norm, chained_nodes in (("", 0), ("|> layernorm ", 4)):
        (tmp_path / "m.nn").write_text(
            "nn 1\ndim B in 1..4 = 1\nmodel M(x: [B, 64]) -> [B, 64] {\n"
            f"  return x {norm}|> linear(64) as a |> relu {norm}|> linear(64) as b\n}}\n"
        )
        options = Options(target="sm_90", provider="own")
        program = compile_entry(check_file(tmp_path / "m.nn"), "predict", {"B": 1}, options)[0]
        found = [len(chained(n.attrs).nodes) for n in program.graph.nodes if n.op.name == "chain"]
        assert found == [chained_nodes] * bool(chained_nodes)


def test_its_text_is_read_again(tmp_path: Path) -> None:
    graph = compiled(tmp_path, after="chains").graph
    text = format_graph(parse_graph(format_graph(graph)))
    assert [line.split("  #")[0] for line in text.splitlines()] == [
        line.split("  #")[0] for line in format_graph(graph).splitlines()
    ]


def _line(count: int) -> tuple[Graph, list[Node]]:
    """Nodes of which each reads the one before it."""
    x = Input("x", Kind.DATA, TensorType(DType.F32, (4,)))
    nodes, value = [], x.value
    for n in range(count):
        nodes.append(Builder(name=f"n{n}").node(OPS["exp"], value))
        value = nodes[-1].out
    return Graph((x,), tuple(nodes), {"y": value}), nodes


def test_a_node_between_ends_a_chain() -> None:
    graph, nodes = _line(7)
    found = with_chains(graph, lambda node: node.name != "n3", lambda body: len(body.nodes))
    assert [node.op.name for node in found.nodes] == ["chain", "exp", "chain"]
    assert [len(chained(n.attrs).nodes) for n in found.nodes if n.op.name == "chain"] == [3, 3]
    verify_graph(found)
    assert nodes[3].name == found.nodes[1].name


def test_nodes_that_do_not_fit_are_left_out() -> None:
    graph, _ = _line(7)
    found = with_chains(graph, lambda node: True, lambda body: min(3, len(body.nodes)) if len(body.nodes) > 1 else 0)
    assert [len(chained(n.attrs).nodes) for n in found.nodes if n.op.name == "chain"] == [3, 3]
    assert len(with_chains(graph, lambda node: True, lambda body: 0).nodes) == 7
    verify_graph(found)


def test_a_node_that_needs_nothing_of_a_chain_comes_before_it() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (4,)))
    first = Builder(name="a").node(OPS["exp"], x.value)
    other = Builder(name="other").node(OPS["exp"], x.value)
    last = Builder(name="b").node(OPS["add"], first.out, other.out)
    graph = Graph((x,), (first, other, last), {"y": last.out})
    found = with_chains(graph, lambda node: node.name != "other", lambda body: len(body.nodes))
    assert [node.op.name for node in found.nodes] == ["exp", "chain"]
    verify_graph(found)


def test_golden(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    with chdir(tmp_path):
        before, after = (compiled(Path(), after=name).graph for name in ("prepare", "chains"))
    golden("passes/chains.txt", difference(format_graph(before), format_graph(after)))
