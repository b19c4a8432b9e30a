"""turned_products: a product that is only read transposed has its factors in the other order."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.random_graphs import evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.turned_products import turned_products

SWAP = (0, 2, 1)


def graph_of(flags: tuple[bool, bool], perm: tuple[int, ...] = SWAP, again: bool = False) -> Graph:
    """transpose(a @ b), and with ``again`` a @ b, too."""
    shapes = [shape[::-1] if flag else shape for flag, shape in zip(flags, ((4, 3), (3, 5)))]
    a, b = (Input(name, Kind.DATA, TensorType(DType.F32, (2, *shape))) for name, shape in zip("ab", shapes))
    build = Builder(name="here")
    product = build(OPS["matmul"], a.value, b.value, transpose_a=flags[0], transpose_b=flags[1])
    results = {"result.y": build(OPS["transpose"], product, perm=perm)}
    results |= {"result.z": build(OPS["exp"], product)} if again else {}
    return Graph((a, b), order(list(results.values())), results)


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
def test_no_transpose_is_left(flags: tuple[bool, bool]) -> None:
    graph = graph_of(flags)
    found = turned_products(graph)
    verify_graph(found)
    [node] = found.nodes
    assert node.op.name == "matmul"
    assert (node.attrs["transpose_a"], node.attrs["transpose_b"]) == (not flags[1], not flags[0])
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=i.value.type.ints).astype(np.float32) for i in graph.inputs}
    [was], [now] = (list(evaluate(g, feeds).values()) for g in (graph, found))
    np.testing.assert_allclose(now, was, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graph", [graph_of((True, False), again=True), graph_of((True, False), perm=(1, 0, 2))])
def test_a_product_that_is_read_as_it_is_or_turned_otherwise_stays(graph: Graph) -> None:
    assert turned_products(graph) is graph


def test_the_node_keeps_its_name_and_phase() -> None:
    graph = graph_of((True, False))
    [found] = turned_products(graph).nodes
    was = graph.nodes[0]
    assert isinstance(found, Node) and (found.name, found.phase) == (was.name, was.phase)
