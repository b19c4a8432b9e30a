"""image_transposes: those around ops on images go, others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.layout.image_transposes import image_transposes
from dslc.compiler.passes.lower.layout.transposes import transposes

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
GEOMETRY = {"k": (3, 2), "stride": (2, 1), "pad": (1, 0)}
#: op -> its attributes, and the op that takes its place
CASES: dict[str, tuple[dict, str]] = {
    "relu": ({}, "relu"),
    "maxpool": (GEOMETRY, "maxpool_last"),
    "avgpool": (GEOMETRY, "avgpool_last"),
    "avgpool_grad": ({**GEOMETRY, "size": (9, 5)}, "avgpool_grad_last"),
    "interpolate": ({"size": (9, 8), "mode": "linear"}, "interpolate_last"),
    "border": ({"low": (0, 0, 1, 0), "high": (0, 0, 0, 1), "mode": "reflect"}, "border"),
}


def between(op: str, **attrs: object) -> Graph:
    """An op on images that are turned before and back after it."""
    x, b = input_of("x", Kind.DATA, 2, 5, 4, 3), Builder(name="here")
    values: list[Value] = list(b.node(OPS[op], b(OPS["transpose"], x.value, perm=FIRST), **attrs).outputs)
    return graph_of([x], {f"result.{i}": b(OPS["transpose"], v, perm=LAST) for i, v in enumerate(values)})


def ops_of(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


@pytest.mark.parametrize("op", CASES)
def test_no_transpose_is_left_and_values_stay(op: str) -> None:
    attrs, last = CASES[op]
    graph = between(op, **attrs)
    after = image_transposes(graph)
    verify_graph(after)
    assert ops_of(after) == {last: 1}
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(evaluate(after, feeds)[key], value, rtol=1e-12)
    assert image_transposes(after) is after


def test_golden(golden: Callable[[str, str], None]) -> None:
    before = between("avgpool", **GEOMETRY)
    golden(
        "passes/image_transposes.txt", f"{format_graph(before)}\nbecomes\n\n{format_graph(image_transposes(before))}"
    )


def test_adaptive_pools_stay() -> None:
    graph = between("adaptive_avgpool", size=(2, 3))
    assert image_transposes(graph) is graph and ops_of(transposes(graph)) == {"adaptive_avgpool_last": 1}


@pytest.mark.parametrize(("name", "attrs"), [("mean", {}), ("logsumexp", {}), ("prod", {}), ("norm", {"p": 2.0})])
def test_a_reduction_of_each_channel_reads_what_is_there(name: str, attrs: dict[str, float]) -> None:
    x, b = input_of("x", Kind.DATA, 2, 5, 4, 3), Builder(name="here")
    y = b(OPS[name], b(OPS["transpose"], x.value, perm=FIRST), over=(2, 3), keep=False, **attrs)
    graph = graph_of([x], {"result.y": y})
    after = image_transposes(graph)
    assert ops_of(after) == {name: 1}
    feeds = feeds_of(graph, 0)
    np.testing.assert_allclose(evaluate(after, feeds)["result.y"], evaluate(graph, feeds)["result.y"], rtol=1e-6)


@pytest.mark.parametrize("perm", [(1, 0), (0, 2, 1, 3), (1, 2, 0)])
def test_transposes_that_are_none_of_images_stay(perm: tuple[int, ...]) -> None:
    x, b = input_of("x", Kind.DATA, *(5, 4, 3, 2)[: len(perm)]), Builder(name="here")
    y = b(OPS["relu"], b(OPS["transpose"], x.value, perm=perm))
    back = tuple(sorted(range(len(perm)), key=perm.__getitem__))
    graph = graph_of([x], {"result.y": b(OPS["transpose"], y, perm=back)})
    assert image_transposes(graph) is graph and ops_of(transposes(graph)) == {"relu": 1}


def test_convolutions_with_channels_first_stay() -> None:
    x, w, b = input_of("x", Kind.DATA, 2, 9, 9, 16), input_of("w", Kind.PARAM, 16, 16, 3, 3), Builder(name="here")
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": 1}
    y = b(OPS["conv"], b(OPS["transpose"], x.value, perm=FIRST), w.value, **attrs)
    graph = graph_of([x, w], {"result.y": b(OPS["transpose"], y, perm=LAST)})
    assert image_transposes(graph) is graph and transposes(graph) is not graph
