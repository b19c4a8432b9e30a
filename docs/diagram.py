"""Draws a Mermaid flowchart as SVG, so that the site shows it without JavaScript and without another server.

The subset that the pages use: ``flowchart``, nodes ``name[text]`` or ``name["text"]``, edges ``a --> b``,
``a -- text --> b`` and ``a -->|"text"| b``, ``subgraph name["title"]`` to ``end``, ``<br/>`` in texts. Layers run from
top to bottom, whatever the direction in the source, so that a diagram fits a phone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

_LINE: Final = 17  # pixels of a line of text
_LETTER: Final = 7.2
_PAD: Final = 10
_GAP_X: Final = 40
_GAP_Y: Final = 34  # between layers, without the labels of edges
_NODE: Final = r"(\w+)(?:\[\"?(.*?)\"?\])?"
_EDGE: Final = re.compile(rf'{_NODE}\s+(?:-->(?:\|"?(.*?)"?\|)?|--\s(.*?)\s-->)\s*{_NODE}\Z')
_GROUP: Final = re.compile(rf"subgraph {_NODE}\Z")


@dataclass
class _Box:
    lines: list[str]
    group: str
    layer: int = 0
    x: float = 0.0  # of the centre
    y: float = 0.0  # of the top

    @property
    def width(self) -> float:
        return 2 * _PAD + _LETTER * max(map(len, self.lines))

    @property
    def height(self) -> float:
        return 2 * _PAD + _LINE * len(self.lines)


@dataclass
class _Chart:
    boxes: dict[str, _Box] = field(default_factory=dict)
    edges: list[tuple[str, str, list[str]]] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)


def svg(source: str) -> str:
    """The picture as one line of SVG, whose colours are those of the page. ValueError for a line that is not read, or
    edges that make a circle."""
    chart = _parsed(source)
    width, height = _place(chart)
    parts = [
        f'<svg class="diagram" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 Z"/></marker></defs>',
        *_frames(chart),
        *(part for edge in chart.edges for part in _edge(chart, *edge)),
    ]
    for box in chart.boxes.values():
        at = f'x="{box.x - box.width / 2:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
        parts.append(f'<rect class="box" {at} rx="5"/>')
        parts += _text(box.lines, box.x, box.y + _PAD, "middle")
    return "".join([*parts, "</svg>"])


def _parsed(source: str) -> _Chart:
    chart, group = _Chart(), ""

    def node(name: str, text: str | None) -> str:
        if text is not None or name not in chart.boxes:
            chart.boxes[name] = _Box(re.split(r"<br ?/?>", text or name), group)
        return name

    for line in filter(None, map(str.strip, source.splitlines())):
        if line.startswith("flowchart "):
            continue
        if line == "end":
            group = ""
        elif found := _GROUP.match(line):
            group = found[1]
            chart.groups[group] = found[2] or group
        elif found := _EDGE.match(line):
            label = found[3] or found[4]
            edge = node(found[1], found[2]), node(found[5], found[6])
            chart.edges.append((*edge, re.split(r"<br ?/?>", label) if label else []))
        else:
            raise ValueError(f"a diagram has a line that is not read: {line}")
    return chart


def _place(chart: _Chart) -> tuple[float, float]:
    """Give each box its layer and place; returns the width and height of the picture."""
    boxes = chart.boxes
    for _ in boxes:
        for above, below, _label in chart.edges:
            boxes[below].layer = max(boxes[below].layer, boxes[above].layer + 1)
    if any(boxes[below].layer <= boxes[above].layer for above, below, _label in chart.edges):
        raise ValueError("the edges of a diagram make a circle")
    layers = [
        [box for box in boxes.values() if box.layer == at] for at in range(1 + max(b.layer for b in boxes.values()))
    ]
    y = _GAP_Y / 2
    for at, layer in enumerate(layers):
        step = max(max(box.width for box in layer), _labels_width(chart, at)) + _GAP_X
        for place, box in enumerate(layer):
            box.x, box.y = (place - (len(layer) - 1) / 2) * step, y
        y += max(box.height for box in layer) + _GAP_Y + _LINE * _labels_height(chart, at + 1)
    left = min(box.x - max(box.width, _labels_width(chart, box.layer)) / 2 for box in boxes.values()) - 2 * _PAD
    for box in boxes.values():
        box.x -= left
    right = max(box.x + max(box.width / 2, _labels_width(chart, box.layer)) for box in boxes.values())
    return right + 2 * _PAD, max(box.y + box.height for box in boxes.values()) + _GAP_Y / 2


def _labels_width(chart: _Chart, layer: int) -> float:
    """The width of the widest label on an edge to the layer."""
    found = [len(line) for _, to, label in chart.edges if chart.boxes[to].layer == layer for line in label]
    return _LETTER * max(found, default=0)


def _labels_height(chart: _Chart, layer: int) -> int:
    """The most lines of a label on an edge to the layer."""
    return max((len(label) for _, to, label in chart.edges if chart.boxes[to].layer == layer), default=0)


def _edge(chart: _Chart, above: str, below: str, label: list[str]) -> Iterator[str]:
    start, end = chart.boxes[above], chart.boxes[below]
    y1, y2 = start.y + start.height, end.y
    middle = (y1 + y2) / 2
    yield (
        f'<path class="edge" marker-end="url(#tip)" d="M{start.x:.0f} {y1:.0f} C{start.x:.0f} {middle:.0f} '
        f'{end.x:.0f} {middle:.0f} {end.x:.0f} {y2:.0f}"/>'
    )
    if label:  # outside of the bend: on the left of a line that goes to the left
        side = -1 if end.x < start.x else 1
        x = end.x + side * _PAD
        yield from _text(label, x, middle - _LINE * len(label) / 2, "end" if side < 0 else "start", "label")


def _frames(chart: _Chart) -> Iterator[str]:
    for name, title in chart.groups.items():
        inside = [box for box in chart.boxes.values() if box.group == name]
        if not inside:
            continue
        left = min(box.x - max(box.width, _labels_width(chart, box.layer)) / 2 for box in inside) - _PAD
        right = max(box.x + max(box.width / 2, _labels_width(chart, box.layer)) for box in inside) + _PAD
        top, bottom = min(box.y for box in inside) - _PAD, max(box.y + box.height for box in inside) + _PAD
        yield (
            f'<rect class="frame" x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" '
            f'height="{bottom - top:.0f}" rx="8"/>'
        )
        yield from _text([title], right - _PAD, top + 4, "end", "label")


def _text(lines: list[str], x: float, top: float, anchor: str, look: str = "text") -> Iterator[str]:
    for at, line in enumerate(lines):
        y = top + _LINE * (at + 0.75)
        yield f'<text class="{look}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(line)}</text>'
