"""slope: a cross entropy and its gradient are one node; the same bits, in any order of the nodes."""

from __future__ import annotations

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.reduction.cross_entropy import cross_entropy

B, BACK = Builder(name="loss"), Builder(name="loss", phase=Phase.BACKWARD)
X, OTHER, SCALE = input_of("x", Kind.DATA, 8, 5), input_of("z", Kind.DATA, 8, 5), input_of("scale", Kind.DATA)
LABEL = B(OPS["full"], dtype=DType.I32, shape=(8,), value=3)
ATTRS = {"axis": 1, "smoothing": 0.1}


def entropy() -> tuple[Value, list[Value]]:
    """The loss, and its statistics."""
    loss, *statistics = B.node(OPS["softmax_cross_entropy"], X.value, LABEL, **ATTRS).outputs
    return loss, statistics


def grad(statistics: list[Value], dy: Value, **attrs: float) -> Value:
    return BACK(OPS["softmax_cross_entropy_grad"], X.value, LABEL, *statistics, dy, **{**ATTRS, **attrs})


def share() -> Value:
    return BACK(OPS["full"], dtype=DType.F32, shape=(8,), value=0.125)


def checked(**outputs: Value) -> Graph:
    graph = graph_of([X, OTHER, SCALE], outputs)
    found = cross_entropy(graph)
    verify_graph(found)
    feeds = feeds_of(graph, 2)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    assert cross_entropy(found) is found
    return found


def names(graph: Graph) -> list[str]:
    return sorted(n.op.name for n in graph.nodes if n.op.name != "full")


def test_a_constant_is_a_number_of_the_node() -> None:
    loss, lse = entropy()
    found = checked(loss=B(OPS["mean"], loss, over=(0,), keep=False), dx=BACK(OPS["neg"], grad(lse, share())))
    assert names(found) == ["mean", "neg", "softmax_cross_entropy_both"]
    [both] = [n for n in found.nodes if len(n.outputs) == 2]
    assert both.attrs["dy"] == 0.125 and len(both.inputs) == 2


def test_what_the_gradient_of_the_loss_is_made_of_comes_first() -> None:
    loss, lse = entropy()
    dy = BACK(OPS["mul"], share(), SCALE.value)
    found = checked(a=B(OPS["mean"], loss, over=(0,), keep=False), b=BACK(OPS["neg"], dy), c=grad(lse, dy))
    assert names(found) == ["mean", "mul", "neg", "softmax_cross_entropy_both"]


def test_a_gradient_that_comes_of_another_loss_reads_what_that_has_become() -> None:
    loss, lse = entropy()
    first = B.node(OPS["softmax_cross_entropy"], OTHER.value, LABEL, **ATTRS)
    dx = BACK(OPS["softmax_cross_entropy_grad"], OTHER.value, LABEL, *first.outputs[1:], share(), **ATTRS)
    found = checked(a=B(OPS["neg"], loss), b=grad(lse, BACK(OPS["mul"], share(), first.outputs[0])), c=dx)
    assert names(found) == ["mul", "neg", "softmax_cross_entropy_both", "softmax_cross_entropy_both"]


@pytest.mark.parametrize("why", ["of the loss", "read", "result", "attrs", "twice"])
def test_what_stays_two(why: str) -> None:
    loss, statistics = entropy()
    outputs = {"loss": loss}
    match why:
        case "of the loss":  # as with a focal loss
            outputs["dx"] = grad(statistics, BACK(OPS["mul"], share(), loss))
        case "read":
            outputs |= {"dx": grad(statistics, share()), "z": B(OPS["exp"], statistics[1])}
        case "result":
            outputs |= {"dx": grad(statistics, share()), "top": statistics[0]}
        case "attrs":
            outputs["dx"] = grad(statistics, share(), smoothing=0.2)
        case "twice":
            outputs |= {"dx": grad(statistics, share()), "z": grad(statistics, BACK(OPS["neg"], share()))}
    graph = graph_of([X, OTHER, SCALE], outputs)
    assert cross_entropy(graph) is graph
