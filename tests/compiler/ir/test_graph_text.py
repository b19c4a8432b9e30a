"""The printed graph reads back: symbolic sizes, odd names and attributes, fused bodies, 100,000 nodes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from graphs.random_graphs import graph_of, input_of, random_graph

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.size_text import AttrReader, MalformedText
from dslc.compiler.ir.sizes import Dim, floor_div, of_dim
from dslc.compiler.ir.text import format_attr, format_graph, parse_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph

B = of_dim(Dim("B", 1, 512, 64))
T = of_dim(Dim("T", 2, 99, 10))


def _round_trip(graph: Graph) -> Graph:
    text = format_graph(graph)
    back = parse_graph(text)
    assert format_graph(back) == text
    verify_graph(back)
    return back


def test_symbolic_sizes_come_back_equal() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.FLOAT, (B, 3, 2 * T + 1)))
    b = Builder(name="a", phase=Phase.BACKWARD)
    y = b(OPS["reshape"], x.value, shape=(B * (2 * T + 1), 3))
    z = b(OPS["expand"], b(OPS["full"], value=1.5, dtype=DType.I32 if False else DType.FLOAT, shape=()), shape=(T,))
    back = _round_trip(graph_of([x], {"y": y, "z": z}))
    assert [v.type for v in back.outputs.values()] == [y.type, z.type]
    assert back.nodes[0].attrs == y.producer.attrs and back.nodes[0].phase is Phase.BACKWARD


@pytest.mark.parametrize(
    "attr",
    [0, -3, True, False, 1.0, -0.0, 1e-05, 1e300, -2.5, "", "inf", 'a "quoted" # } : text, (', DType.F32, DType.FLOAT,
     (), (1,), (1, (2, (3.5,), "x")), B, -B + 3, 3 * B * T - 2, floor_div(B + 3, 4) * 2 + 1, (B, (T,)),
     floor_div(floor_div(B + 1, 2) + 1, 2), (floor_div(T, 3), 2), float("inf"), 9223372036854775807],
    ids=str,
)  # fmt: skip
def test_attributes_come_back_equal(attr: object) -> None:
    reader = AttrReader()
    reader.dims = {d.name: d for s in (B, T) for d in s.dims}  # type: ignore[union-attr]
    text = format_attr(attr)  # type: ignore[arg-type]
    back = reader.value(text)
    assert back == attr and type(back) is type(attr) and str(back) == str(attr)
    assert reader.attrs(f"a=1, b={text}, c=(2,)") == {"a": 1, "b": attr, "c": (2,)}


def test_deep_attributes_need_no_recursion() -> None:
    deep: object = ()
    for _ in range(20_000):
        deep = (deep,)
    text = format_attr(deep)  # type: ignore[arg-type]
    assert format_attr(AttrReader().value(text)) == text


@pytest.mark.parametrize("name", ["c1.weight", "stage.1.a#2", "with space", 'quo"te', "#", ""])
def test_names_come_back(name: str) -> None:
    x = input_of(name or "x", Kind.DATA, 3)
    y = Builder(name=name)(OPS["exp"], x.value)
    back = _round_trip(graph_of([x], {name: y}))
    assert list(back.outputs) == [name] and back.nodes[0].name == name


@pytest.mark.parametrize(
    "text",
    ["%0 = data x", "output y = %0", "%0 = exp %1 : f32[3]  # a forward", "nonsense", "%0 = data x : f33[2]",
     "%0 = data x : f32[2,,]", "%0 = data x : f32[B]", "%0 = nothing : f32[2]  # a forward",
     "%0 = full {shape=(} : f32[2]  # a forward", "%0 = full {shape=)} : f32[2]  # a forward",
     "%0 = full {shape=1 2 \"x\"} : f32[2]  # a forward", "%0, %1 = full {value=1} : f32[2]  # a forward"],
)  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedText, match="line 1"):
        parse_graph(text)


def test_random_graphs_come_back(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(300)):
        graph = random_graph(rng, 40)
        _round_trip(graph)
        _round_trip(fuse_graph(graph))


@pytest.mark.slow
def test_100_000_nodes() -> None:
    x = input_of("x", Kind.DATA, 8)
    value = x.value
    nodes: list[Node] = []
    for i in range(100_000):
        nodes.append(Builder(name=f"layer.{i}").node(OPS["exp"], value))
        value = nodes[-1].out
    graph = Graph((x,), tuple(nodes), {"y": value})
    start = time.perf_counter()
    text = format_graph(graph)
    middle = time.perf_counter()
    back = parse_graph(text)
    end = time.perf_counter()
    print(f"print {(middle - start) * 10:.1f} us a node, read {(end - middle) * 10:.1f} us a node")
    assert len(back.nodes) == 100_000 and back.nodes[-1].name == "layer.99999"
