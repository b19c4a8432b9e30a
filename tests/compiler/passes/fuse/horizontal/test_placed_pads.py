"""The gradient of a tensor that is read in parts is written once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.horizontal import placed_pads as module
from dslc.compiler.passes.fuse.horizontal.placed_pads import placed_pads

B = Builder(name="parts")
WHOLE = (4, 9)
X, OTHER, MORE = (input_of(name, Kind.DATA, *WHOLE) for name in ("x", "other", "more"))


def padded(first: int, last: int, value: float = 0.0, interior: int = 0) -> Value:
    """Columns first..last of x, in a tensor of zeros."""
    part = B(OPS["slice"], X.value, starts=(0, first), stops=(4, last), steps=(1, 1 + interior))
    ends = {"low": (0, first), "high": (0, 9 - last + (last - first - 1) % (1 + interior))}
    return B(OPS["pad"], part, interior=(0, interior), value=value, **ends)


def total(*terms: Value) -> Value:
    whole = terms[0]
    for term in terms[1:]:
        whole = B(OPS["add"], whole, term)
    return whole


def placed(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "placed"]


def checked(*terms: Value) -> Graph:
    graph = graph_of([X, OTHER, MORE], {"result.y": total(*terms)})
    after = placed_pads(graph)
    verify_graph(after)
    assert placed_pads(after) is after
    rng = np.random.default_rng(2)
    feeds = {name: rng.normal(size=WHOLE).astype(np.float32) for name in ("x", "other", "more")}
    for before, found in zip(evaluate(graph, feeds).values(), evaluate(after, feeds).values(), strict=True):
        np.testing.assert_array_equal(before, found)
    return after


def test_parts_of_a_tensor(golden: Callable[[str, str], None]) -> None:
    terms = padded(0, 2), padded(2, 3), padded(5, 9)
    after = checked(*terms)
    [node] = placed(after)
    assert len(node.inputs) == 3 and not any(n.op.name in ("pad", "add") for n in after.nodes)
    before = format_graph(graph_of([X, OTHER, MORE], {"result.y": total(*terms)}))
    golden("passes/placed_pads.txt", f"before\n\n{before}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_other_term_is_added(place: int) -> None:
    terms = [padded(0, 2), padded(5, 9)]
    terms.insert(place, OTHER.value)
    after = checked(*terms)
    assert len(placed(after)) == 1 and sum(n.op.name == "add" for n in after.nodes) == 1


def test_several_other_terms_are_added_where_they_were() -> None:
    parts, others = [padded(0, 2), padded(5, 9)], [OTHER.value, MORE.value]
    for terms in ([*others, *parts], [*parts, *others], [others[0], *parts, others[1]]):
        assert len(placed(checked(*terms))) == 1
    assert not placed(checked(parts[0], *others, parts[1])), "these sums would round in another order"


@pytest.mark.parametrize("others", [0, 1, 2])
def test_parts_that_take_turns(others: int) -> None:
    terms = [B(OPS["slice"], X.value, starts=(i, 0), stops=(4, 9), steps=(2, 1)) for i in (1, 0)]
    pads = [B(OPS["pad"], v, low=(i, 0), high=(1 - i, 0), interior=(1, 0), value=0.0) for v, i in zip(terms, (0, 1))]
    after = checked(*pads, *[OTHER.value, MORE.value][:others])
    assert not any(n.op.name == "pad" for n in after.nodes)
    assert (
        sum(n.op.name == "concat" for n in after.nodes) == 1 and sum(n.op.name == "add" for n in after.nodes) == others
    )


def test_more_parts_than_a_node_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BOXES", 4)
    after = checked(*(padded(i, i + 1) for i in range(9)))
    assert sorted(len(n.inputs) for n in placed(after)) == [1, 4, 4]


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param((padded(0, 3), padded(2, 5)), id="an element in two parts"),
        pytest.param((padded(0, 3), padded(4, 9, interior=1)), id="gaps"),
        pytest.param((padded(0, 3), padded(4, 9, value=1.0)), id="ones around a part"),
        pytest.param((padded(0, 3), OTHER.value, padded(4, 9), MORE.value), id="two other terms"),
        pytest.param((padded(0, 3), OTHER.value), id="one part"),
    ],
)
def test_other_sums_stay(terms: tuple[Value, ...]) -> None:
    assert not placed(checked(*terms))


def test_a_padded_part_that_is_read_twice_stays() -> None:
    both = padded(0, 3)
    graph = graph_of([X], {"result.y": total(both, padded(4, 9)), "result.z": B(OPS["neg"], both)})
    assert placed_pads(graph) is graph
