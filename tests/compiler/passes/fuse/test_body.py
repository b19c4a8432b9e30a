"""Bodies of nodes that are merged: what several of them compute is one step, and the result is that of the last."""

from __future__ import annotations

from typing import Any

from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.ir.graph import Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import steps
from dslc.compiler.passes.fuse.body import with_producers
from dslc.compiler.passes.fuse.reduction.row_bodies import in_rows

X = input_of("x", Kind.DATA, 6, 8)
B = Builder(name="net")


def fused(inputs: list[Value], *body: Any) -> Node:
    return B.node(OPS["fused"], *inputs, body=body)


def names(node: Node) -> list[str]:
    return [name for name, _, _ in steps(node.attrs)]


def checked(before: Node, after: Node) -> None:
    """Both compute the same bits."""
    graphs = [graph_of([X], {f"result.{i}": v for i, v in enumerate(node.outputs)}) for node in (before, after)]
    for graph in graphs:
        verify_graph(graph)
    feeds = feeds_of(graphs[0], 0)
    assert_same_bits(*(evaluate(graph, feeds) for graph in graphs))


def test_what_two_producers_have_taken_in_is_one_step() -> None:
    one = ("full", (), (("dtype", X.value.type.dtype), ("shape", ()), ("value", 1.0)))
    first = fused([X.value], one, ("sub", (0, 1), ()), ("exp", (2,), ()))
    second = fused([X.value], one, ("sub", (0, 1), ()), ("abs", (2,), ()))
    reader = B.node(OPS["mul"], first.out, second.out)
    joined = with_producers(reader, [first, second])
    assert names(joined) == ["full", "sub", "exp", "abs", "mul"]
    checked(reader, joined)


def test_numbers_that_python_calls_equal_are_two_steps() -> None:
    def number(value: float) -> Any:
        return ("full", (), (("dtype", X.value.type.dtype), ("shape", ()), ("value", value)))

    first = fused([X.value], number(0.0), ("mul", (0, 1), ()))
    second = fused([X.value], number(-0.0), ("mul", (0, 1), ()))
    reader = B.node(OPS["div"], first.out, second.out)
    joined = with_producers(reader, [first, second])
    assert names(joined) == ["full", "mul", "full", "mul", "div"]
    checked(reader, joined)


def test_the_result_is_the_last_step_also_if_it_was_computed_before() -> None:
    first = fused([X.value], ("exp", (0,), ()), ("neg", (1,), ()))
    second = fused([X.value], ("exp", (0,), ()), ("abs", (1,), ()))
    reader = fused([first.out, second.out, X.value], ("add", (0, 1), ()), ("exp", (2,), ()))
    joined = with_producers(reader, [first, second])
    assert names(joined) == ["exp", "neg", "abs", "add", "exp"]
    checked(reader, joined)


def test_results_of_a_node_keep_their_order() -> None:
    first = fused([X.value], ("exp", (0,), ()))
    second = fused([X.value], ("exp", (0,), ()), ("abs", (1,), ()))
    reader = B.node(
        OPS["fused"], first.out, second.out, X.value, body=(("exp", (2,), ()), ("mul", (0, 1), ())), results=(4, 3)
    )
    joined = with_producers(reader, [first, second])
    assert names(joined) == ["exp", "abs", "mul"] and int_tuple(joined.attrs, "results") == (3, 1)
    checked(reader, joined)


def test_steps_after_a_sum_do_not_see_those_before_it() -> None:
    """Its kernel computes these in another place: it has no way to compute a node that says otherwise."""
    before = B.node(OPS["exp"], X.value)
    core = B.node(OPS["sum"], before.out, over=(1,), keep=True)
    after = fused([X.value, core.out], ("exp", (0,), ()), ("sub", (2, 1), ()))
    joined = in_rows([before], core, after)
    assert names(joined) == ["exp", "sum", "exp", "sub"]
    checked(after, joined)
    seen = B.node(OPS["fused_rows"], X.value, body=(*joined.attrs["body"][:2], ("sub", (1, 2), ())))  # type: ignore[index]
    checked(after, seen)
    assert lowered(joined, "sm_90", vendor=False) is not None
    assert lowered(seen, "sm_90", vendor=False) is None
