"""The picture: well-formed, every part in it, nothing on anything else, huge graphs cut with a message."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

from graphs.random_graphs import graph_of, input_of, random_graph

from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
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


def _frames(text: str) -> list[tuple[str, tuple[float, float, float, float]]]:
    rects = [r for r in ET.fromstring(text).iter(f"{SVG}rect") if r.get("class") == "frame"]
    places = [tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height")) for r in rects]
    return [(str(r[0].text), place) for r, place in zip(rects, places)]  # type: ignore[misc]


def test_the_nodes_of_a_block_are_framed() -> None:
    b, x = Builder(name="stage.0.conv"), input_of("image", Kind.DATA, 4, 8)
    inner = Builder(name="stage.0.act")(OPS["relu"], b(OPS["exp"], x.value))
    outer = Builder(name="head")(OPS["exp"], inner)
    text = svg(graph_of([x], {"result.output": outer}))
    [(name, (left, top, width, height))] = _frames(text)
    assert name == "stage.0" and ">stage.0</text>" in text
    inside = [b for b in _boxes(text) if left < b[0] and b[0] + b[2] < left + width and top < b[1] < top + height]
    assert len(inside) == 2, "the block's two boxes, neither the input nor the head"


def test_a_frame_lies_on_no_box_of_another_block(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(60)):
        text = svg(random_graph(rng, 30))
        for name, (x, y, w, h) in _frames(text):
            for g in ET.fromstring(text).iter(f"{SVG}g"):
                rect, title = g.find(f"{SVG}rect"), g.findtext(f"{SVG}text", "")
                assert rect is not None
                a, b, c, d = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
                assert title.startswith(name[:20]) or x + w <= a or a + c <= x or y + h <= b or b + d <= y


def test_dark_pages_have_their_own_colours() -> None:
    text = svg(_net(2))
    rules = text[text.index("<style>") : text.index("</style>")]
    light, _, dark = rules.partition("@media (prefers-color-scheme:dark)")
    assert "<style>" not in svg(_net(2), styled=False)
    names = [set(re.findall(r"\.graph \.([a-z-]+)\{", part)) for part in (light, dark)]
    assert names[0] == names[1] and len(names[0]) == 15
    used = {name for e in ET.fromstring(text).iter() for name in e.get("class", "graph").split()} - {"graph"}
    assert used <= names[0] and not re.search(r'(?:fill|stroke)="#', text), "a colour that no page can change"
