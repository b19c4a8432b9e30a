"""transposes: pairs of them around ops that compute in any order of axes go, and no program gets more of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.layout.transposes import transposes

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
GEOMETRY = {"k": (3, 2), "stride": (2, 1), "pad": (1, 0)}
RATIO = {"size": (9, 8), "mode": "linear"}
#: name -> what is computed of the turned image, and the ops that are left
CASES: dict[str, tuple[object, list[str]]] = {
    "pointwise": (lambda b, x: [b(OPS["exp"], b(OPS["relu"], x))], ["relu", "exp"]),
    "a bias": (
        lambda b, x: [b(OPS["add"], x, b(OPS["full"], dtype=x.type.dtype, shape=(3, 1, 1), value=2.0))],
        ["add", "full"],
    ),
    "maxpool": (lambda b, x: list(b.node(OPS["maxpool"], x, **GEOMETRY).outputs), ["maxpool_last"]),
    "avgpool": (lambda b, x: [b(OPS["avgpool"], x, **GEOMETRY)], ["avgpool_last"]),
    "adaptive": (lambda b, x: [b(OPS["adaptive_avgpool"], x, size=(2, 3))], ["adaptive_avgpool_last"]),
    "interpolate": (lambda b, x: [b(OPS["interpolate"], x, **RATIO)], ["interpolate_last"]),
    "pad": (
        lambda b, x: [b(OPS["pad"], x, low=(0, 1, 2, 0), high=(1, 0, 0, 3), interior=(0, 0, 1, 0), value=0.5)],
        ["pad"],
    ),
    "border_grad": (
        lambda b, x: [b(OPS["border_grad"], x, low=(0, 0, 1, 0), high=(0, 0, 0, 1), mode="reflect")],
        ["border_grad"],
    ),
    "slice": (
        lambda b, x: [b(OPS["slice"], x, starts=(0, 1, 0, 2), stops=(2, 3, 5, 4), steps=(1, 1, 2, 1))],
        ["slice"],
    ),
    "concat": (lambda b, x: [b(OPS["concat"], x, b(OPS["exp"], x), axis=1)], ["concat", "exp"]),
}  # fmt: skip


def _graph(name: str) -> Graph:
    x, b = input_of("x", Kind.DATA, 2, 5, 4, 3), Builder(name="here")
    make, _ = CASES[name]
    values: list[Value] = make(b, b(OPS["transpose"], x.value, perm=FIRST))  # type: ignore[operator]
    return graph_of([x], {f"result.{i}": b(OPS["transpose"], v, perm=LAST) for i, v in enumerate(values)})


def _ops(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


@pytest.mark.parametrize("name", CASES)
def test_no_transpose_is_left_and_values_stay(name: str) -> None:
    graph = _graph(name)
    after = transposes(graph)
    verify_graph(after)
    assert _ops(after) == Counter(CASES[name][1])
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(evaluate(after, feeds)[key], value, rtol=1e-12)
    assert transposes(after) is after


@pytest.mark.parametrize("over, left", [((2, 3), 0), ((0, 2, 3), 0), ((1,), 0), ((2,), 1)])
def test_a_reduction_that_keeps_the_order_of_axes_reads_what_is_there(over: tuple[int, ...], left: int) -> None:
    x, b = input_of("x", Kind.DATA, 2, 5, 4, 3), Builder(name="here")
    y = b(OPS["sum"], b(OPS["relu"], b(OPS["transpose"], x.value, perm=FIRST)), over=over, keep=False)
    graph = graph_of([x], {"result.y": y})
    after = transposes(graph)
    assert _ops(after) == Counter({"relu": 1, "sum": 1, **({"transpose": 1} if left else {})})
    feeds = feeds_of(graph, 0)
    np.testing.assert_allclose(evaluate(after, feeds)["result.y"], evaluate(graph, feeds)["result.y"], rtol=1e-6)
    assert transposes(after) is after


@pytest.mark.parametrize(
    "shape, left", [((3, 1, 1), 0), ((2, 3, 1, 1), 0), ((5, 1), 0), ((), 0), ((1, 3, 5, 1), 1), ((2, 1, 1, 1), 0)]
)
def test_a_sum_to_a_shape_that_keeps_the_order_of_axes_reads_what_is_there(shape: tuple[int, ...], left: int) -> None:
    x, b = input_of("x", Kind.DATA, 2, 5, 4, 3), Builder(name="here")
    y = b(OPS["sum_to"], b(OPS["relu"], b(OPS["transpose"], x.value, perm=FIRST)), shape=shape)
    graph = graph_of([x], {"result.y": y})
    after = transposes(graph)
    verify_graph(after)
    found = _ops(after)
    assert found["transpose"] == left and found["sum_to"] == found["relu"] == 1
    feeds = feeds_of(graph, 0)
    np.testing.assert_allclose(evaluate(after, feeds)["result.y"], evaluate(graph, feeds)["result.y"], rtol=1e-6)
    assert transposes(after) is after


@pytest.mark.parametrize("over, left", [((0, 2, 3), 0), ((2, 3), 0), ((1,), 0), ((2,), 1)])
def test_statistics_of_channels_read_what_is_there(over: tuple[int, ...], left: int) -> None:
    """As those of a batch normalisation: sums of the differences from a vector, and of their products."""
    x, mean, b = input_of("x", Kind.DATA, 2, 5, 4, 3), input_of("mean", Kind.DATA, 1, 3, 1, 1), Builder(name="here")
    turned = b(OPS["transpose"], x.value, perm=FIRST)
    body = (("sub", (0, 1), ()), ("mul", (2, 2), ()))
    sums = b.node(OPS["fused_sums"], turned, mean.value, body=body, summed=(2, 3), over=over)
    graph = graph_of([x, mean], {f"result.{i}": value for i, value in enumerate(sums.outputs)})
    after = transposes(graph)
    verify_graph(after)
    found = _ops(after)
    assert found["transpose"] == left and found["fused_sums"] == 1
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(evaluate(after, feeds)[key], value, rtol=1e-6)
    assert transposes(after) is after


@pytest.mark.parametrize("perm, left", [((0, 2, 1), 0), ((1, 0, 2), 1)])
@pytest.mark.parametrize("flag", ["transpose_a", "transpose_b"])
def test_a_product_that_transposes_again_reads_what_is_there(perm: tuple[int, ...], left: int, flag: str) -> None:
    """One that moves other axes keeps the transpose."""
    x, b = input_of("x", Kind.DATA, 2, 4, 3), Builder(name="here")
    y = b(OPS["relu"], b(OPS["transpose"], x.value, perm=perm))
    first, rows, columns = y.type.ints
    w = input_of("w", Kind.DATA, first, *((rows, 5) if flag == "transpose_a" else (5, columns)))
    flags = {"transpose_a": False, "transpose_b": False, flag: True}
    operands = (y, w.value) if flag == "transpose_a" else (w.value, y)
    graph = graph_of([x, w], {"result.y": b(OPS["matmul"], *operands, **flags)})
    after = transposes(graph)
    verify_graph(after)
    assert _ops(after) == Counter({"relu": 1, "matmul": 1, **({"transpose": 1} if left else {})})
    feeds = feeds_of(graph, 0)
    np.testing.assert_allclose(evaluate(after, feeds)["result.y"], evaluate(graph, feeds)["result.y"], rtol=1e-6)
    assert transposes(after) is after


def test_a_value_that_is_read_as_it_is_keeps_its_transpose() -> None:
    x, b = input_of("x", Kind.DATA, 4, 3), Builder(name="here")
    graph = graph_of([x], {"result.y": b(OPS["relu"], b(OPS["transpose"], x.value, perm=(1, 0)))})
    assert transposes(graph) is graph


def test_an_input_of_another_order_keeps_the_transposes() -> None:
    x, z, b = input_of("x", Kind.DATA, 4, 3), input_of("z", Kind.DATA, 3, 4), Builder(name="here")
    total = b(OPS["add"], b(OPS["transpose"], x.value, perm=(1, 0)), z.value)
    graph = graph_of([x, z], {"result.y": b(OPS["transpose"], total, perm=(1, 0))})
    assert transposes(graph) is graph


def test_a_result_in_both_orders_has_one_transpose() -> None:
    x, b = input_of("x", Kind.DATA, 4, 3), Builder(name="here")
    y = b(OPS["relu"], b(OPS["transpose"], x.value, perm=(1, 0)))
    after = transposes(graph_of([x], {"result.y": y, "result.z": b(OPS["transpose"], y, perm=(1, 0))}))
    assert _ops(after) == Counter({"relu": 1, "transpose": 1})


#: channels and results of a group, and groups: whether a convolution of them is turned
@pytest.mark.parametrize(("share", "groups", "turned"), [((17, 16), 1, True), ((1, 1), 6, True), ((2, 3), 2, False)])
def test_a_convolution_and_its_gradients_turn_the_weight_alone(
    share: tuple[int, int], groups: int, turned: bool
) -> None:
    channels, out = share[0] * groups, share[1] * groups
    x, dy = input_of("x", Kind.DATA, 2, 12, 11, channels), input_of("dy", Kind.DATA, 2, 12, 11, out)
    w, b = input_of("w", Kind.PARAM, out, share[0], 3, 3), Builder(name="here")
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": groups}
    image, slope = (b(OPS["transpose"], v.value, perm=FIRST) for v in (x, dy))
    results = {
        "result.y": b(OPS["transpose"], b(OPS["conv"], image, w.value, **attrs), perm=LAST),
        "result.dx": b(OPS["transpose"], b(OPS["conv_dgrad"], slope, w.value, **attrs, size=(12, 11)), perm=LAST),
        "result.dw": b(OPS["conv_wgrad"], image, slope, **attrs, size=(3, 3)),
    }
    graph = graph_of([x, dy, w], results)
    after = transposes(graph)
    verify_graph(after)
    ops = _ops(after)
    assert {name for name in ops if name.startswith("conv")} == {
        f"{name}_last" if turned else name for name in ("conv", "conv_dgrad", "conv_wgrad")
    }
    moved = [node for node in after.nodes if node.op.name == "transpose"]
    assert all(node.types[0].ints[0] in (out, channels) for node in moved) == turned
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(evaluate(after, feeds)[key], value, rtol=1e-9, atol=1e-9)


def test_few_channels_are_read_but_not_written() -> None:
    dy, w, b = input_of("dy", Kind.DATA, 2, 8, 8, 16), input_of("w", Kind.PARAM, 16, 3, 3, 3), Builder(name="here")
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": 1}
    dx = b(OPS["conv_dgrad"], b(OPS["transpose"], dy.value, perm=FIRST), w.value, **attrs, size=(8, 8))
    graph = graph_of([dy, w], {"result.dx": b(OPS["transpose"], dx, perm=LAST)})
    assert transposes(graph) is graph
    x = input_of("x", Kind.DATA, 2, 8, 8, 3)
    y = b(OPS["conv"], b(OPS["transpose"], x.value, perm=FIRST), w.value, **attrs)
    after = transposes(graph_of([x, w], {"result.y": b(OPS["transpose"], y, perm=LAST)}))
    assert _ops(after) == Counter({"conv_last": 1, "transpose": 1})


def test_a_weight_that_is_larger_than_the_images_stays() -> None:
    x, w, b = input_of("x", Kind.DATA, 1, 3, 3, 8), input_of("w", Kind.PARAM, 16, 8, 3, 3), Builder(name="here")
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": 1}
    y = b(OPS["conv"], b(OPS["transpose"], x.value, perm=FIRST), w.value, **attrs)
    graph = graph_of([x, w], {"result.y": b(OPS["transpose"], y, perm=LAST)})
    assert transposes(graph) is graph
