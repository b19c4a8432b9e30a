"""fuse: the same bits, regions that are sound, linear time."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of, random_graph

from dslc.compiler.artifact.labels import plain_attr
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder, NoGradient
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.fused import MAX_STEPS, expanded, fused
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse, fuse_graph

B = Builder(name="a")
X = input_of("x", Kind.DATA, 3, 4)
Y = input_of("y", Kind.DATA, 4)
x, y = X.value, Y.value


def _names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def _body_names(node: Node) -> list[str]:
    return [n.op.name for n in expanded(node.inputs, node.attrs)]


def test_fused_is_unfused_bit_for_bit(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    regions = 0
    for case in range(fuzz_count(1000)):
        graph = random_graph(rng, rng.randint(1, 60))
        after = fuse_graph(graph)
        verify_graph(after)
        assert fuse_graph(after) is after, "a second run changes something"
        regions += _names(after).count("fused")
        feeds = feeds_of(graph, case)
        assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    assert regions


def test_a_tree_becomes_one_node() -> None:
    two = B(OPS["full"], value=2.0, dtype=x.type.dtype, shape=())
    tree = B(OPS["add"], B(OPS["mul"], x, y), B(OPS["exp"], B(OPS["mul"], x, two)))
    [node] = fuse_graph(graph_of([X, Y], {"result.r": tree})).nodes
    assert node.op is fused and set(_body_names(node)) == {"mul", "exp", "add", "full"} and node.inputs == (x, y)
    assert node.name == "a" and node.out.type == tree.type


def test_what_is_read_outside_is_not_swallowed() -> None:
    shared = B(OPS["exp"], x)
    a, b = B(OPS["neg"], shared), B(OPS["tanh"], shared)
    assert _names(fuse_graph(graph_of([X], {"result.a": a, "result.b": b}))) == ["exp", "neg", "tanh"]
    assert _names(fuse_graph(graph_of([X], {"result.a": a, "result.s": shared}))).count("fused") == 0
    both = graph_of([X], {"result.r": B(OPS["add"], a, b)})
    assert _names(fuse_graph(both)) == ["fused"]


def test_phases_and_shapes_are_borders() -> None:
    backward = Builder(phase=Phase.BACKWARD)
    mixed = backward(OPS["neg"], B(OPS["exp"], x))
    assert _names(fuse_graph(graph_of([X], {"result.r": mixed}))) == ["exp", "neg"]
    broadcast = B(OPS["add"], x, B(OPS["exp"], y))
    assert _names(fuse_graph(graph_of([X, Y], {"result.r": broadcast}))) == ["exp", "add"]


def test_no_way_leads_out_of_a_region_and_back() -> None:
    inner = B(OPS["exp"], x)
    total = B(OPS["sum"], inner, over=(0,), keep=False)
    graph = graph_of([X], {"result.r": B(OPS["add"], inner, total)})
    assert _names(fuse_graph(graph)) == ["exp", "sum", "add"]


def test_regions_have_a_limit() -> None:
    value = x
    for _ in range(10 * MAX_STEPS):
        value = B(OPS["tanh"], value)
    after = fuse_graph(graph_of([X], {"result.r": value}))
    assert len(after.nodes) == 10 and all(len(_body_names(n)) == MAX_STEPS for n in after.nodes)


def test_a_long_sum_does_not_keep_all_that_it_adds() -> None:
    """Skip connections: each region adds a dozen tensors that are read nowhere else, and what the one before made."""
    total = x
    for _ in range(30):
        skip = B(OPS["add"], B(OPS["softmax"], x, axis=1), y)
        total = B(OPS["add"], total, skip)
    graph = graph_of([X, Y], {"result.r": total})
    after = fuse_graph(graph)
    regions = [node for node in after.nodes if node.op is fused]
    made = [sum(isinstance(v.producer, Node) and v.producer.op is not fused for v in n.inputs) for n in regions]
    assert made == [6, 12, 12] and sum(v.producer in regions for n in regions for v in n.inputs) == 2
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))


def test_the_option_turns_it_off() -> None:
    graph = graph_of([X], {"result.r": B(OPS["exp"], B(OPS["neg"], x))})
    program = Program("predict", {}, graph)
    assert fuse(program, Build(fuse=False)) is program
    assert _names(fuse(program, Build()).graph) == ["fused"]


def test_the_op_itself() -> None:
    node = fuse_graph(graph_of([X, Y], {"result.r": B(OPS["exp"], B(OPS["mul"], x, y))})).nodes[0]
    feeds = feeds_of(graph_of([X, Y], {}), 1)
    as_json = json.loads(json.dumps({k: plain_attr(v) for k, v in node.attrs.items()}))
    [got] = fused.meaning([feeds["x"], feeds["y"]], as_json)
    assert got.tobytes() == evaluate(graph_of([X, Y], {"r": node.out}), feeds)["r"].tobytes()
    assert fused.cost(node).bytes == 48 + 16 + 48 and fused.cost(node).flops == 24
    assert fused.rows(node, (0, None)) == (0,)
    with pytest.raises(NoGradient):
        fused.grad(node, [node.out], B)


def test_golden(golden: Callable[[str, str], None]) -> None:
    bias = B(OPS["add"], x, y)
    zero = Builder(name="relu")(OPS["full"], value=0.0, dtype=x.type.dtype, shape=())
    relu = Builder(name="relu")(OPS["maximum"], bias, zero)
    out = Builder(name="head")(OPS["mul"], Builder(name="s")(OPS["sum"], relu, over=(1,), keep=True), relu)
    graph = graph_of([X, Y], {"result.r": Builder(name="last")(OPS["neg"], out)})
    golden("passes/fuse.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(fuse_graph(graph))}")


@pytest.mark.slow
def test_150_000_nodes_in_linear_time(allowed: Callable[[float, float], bool]) -> None:
    value: Value = x
    for i in range(75_000):
        value = B(OPS["neg"], value) if i % 5 else B(OPS["transpose"], B(OPS["exp"], value), perm=(1, 0))
        value = B(OPS["tanh"], value)
    graph = graph_of([X], {"result.r": value})
    start = time.process_time()
    after = fuse_graph(graph)
    spent = time.process_time() - start
    each = spent / len(graph.nodes) * 1e6
    print(f"{len(graph.nodes)} -> {len(after.nodes)} nodes, {each:.1f} us a node")
    assert len(after.nodes) < len(graph.nodes) / 2
    assert allowed(spent, 60e-6 * len(graph.nodes))  # the goal is 10 us a node
