"""The picture: well-formed, every part in it, nothing on anything else, huge graphs cut with a message."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from collections.abc import Callable

from graphs.random_graphs import graph_of, input_of, random_graph

from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes.fuse.pointwise import fuse_graph
from dslc.compiler.report.graph_svg import MAX_BOXES, svg

SVG = "{http://www.w3.org/2000/svg}"


def _net(layers: int, prefix: str = "stage.{0}.unit") -> Graph:
    x = input_of("image", Kind.DATA, 4, 8)
    inputs, value = [x], x.value
    for i in range(layers):
        w = input_of(f"l{i}.weight", Kind.PARAM, 8, 8)
        inputs.append(w)
        b = Builder(name=prefix.format(i))
        hidden = b(OPS["matmul"], value, w.value, transpose_a=False, transpose_b=True)
        value = Builder(name=f"act_{i}")(OPS["relu"], b(OPS["add"], hidden, value))
    return fuse_graph(graph_of(inputs, {"result.output": value}))


def _boxes(text: str) -> list[tuple[float, float, float, float]]:
    rects = [g.find(f"{SVG}rect") for g in ET.fromstring(text).iter(f"{SVG}g")]
    return [tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height")) for r in rects if r is not None]  # type: ignore[misc]


def test_every_part_is_in_it() -> None:
    text = svg(_net(2))
    for part in ("image", "stage.0.unit", "act_1", "matmul", "add + relu", "weight f32[8, 8]", "result.output"):
        assert part in text, part
    assert text == svg(_net(2))


def test_no_box_lies_on_another(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(100)):
        boxes = _boxes(svg(random_graph(rng, 40)))
        for i, (x, y, w, h) in enumerate(boxes):
            assert x >= 0 and y >= 0
            for a, b, c, d in boxes[:i]:
                assert x + w <= a + 1 or a + c <= x + 1 or y + h <= b or b + d <= y


def test_names_are_escaped() -> None:
    x = input_of("x", Kind.DATA, 2)
    text = svg(graph_of([x], {"<&>": Builder(name='a"<b>&')(OPS["exp"], x.value)}))
    ET.fromstring(text)
    assert "<b>" not in text


def test_huge_graphs_are_joined_or_cut() -> None:
    text = svg(_net(300, "layer.{0}"))
    assert (len(_boxes(text)) <= MAX_BOXES and "joined by the first 1 parts" in text) or "the first" in text
    text = svg(_net(1_000))
    assert len(_boxes(text)) == MAX_BOXES and f"the first {MAX_BOXES} of" in text


def test_an_empty_graph() -> None:
    ET.fromstring(svg(Graph((), (), {})))


def test_golden(golden: Callable[[str, str], None]) -> None:
    golden("passes/picture.svg", svg(_net(2)))
