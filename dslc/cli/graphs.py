"""Graphs for people: what a pass changed, where values lie, a picture."""

from __future__ import annotations

import difflib
import re
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dslc.compiler.ir.graph import Graph
    from dslc.compiler.ir.program import Program

_VALUE: Final = re.compile(r"%\d+")
_CONTEXT: Final = 2  # unchanged lines shown around a change


def difference(before: str, after: str) -> str:
    """Lines that are gone (``-``) and new (``+``). Lines that differ in the values' numbers alone count as equal."""
    old, new = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(
        None, [_VALUE.sub("%", line) for line in old], [_VALUE.sub("%", line) for line in new], autojunk=False
    )
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        lines.append("...")
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [f"  {line}" for line in new[k:m]]
            else:
                lines += [f"- {line}" for line in old[i:j]]
                lines += [f"+ {line}" for line in new[k:m]]
    return "\n".join(lines[1:]) + "\n" if lines else "nothing changed in the graph\n"


def memory_text(program: Program) -> str:
    """Where each value lies, once the memory pass ran; else an empty text."""
    from dslc.compiler.ir.text import numbering

    memory = program.memory
    if memory is None:
        return ""
    number = numbering(program.graph)
    rows = sorted((number[value], place, value.type) for value, place in memory.places.items() if value in number)
    lines = [f"%{index} at {place.region}+{place.offset} : {type}" for index, place, type in rows]
    lines.append(f"io {memory.io_bytes} bytes, work {memory.work_bytes} bytes, lower bound {memory.lower_bound} bytes")
    return "\n".join(["", *lines]) + "\n"


_WIDTH: Final = 190
_HEIGHT: Final = 40
_GAP: Final = 24
_COLORS: Final = {"forward": "#dbeafe", "backward": "#fde2d6", "update": "#d9f2d9", "input": "#eeeeee"}


def picture(graph: Graph) -> str:
    """An SVG: one box a node, coloured by its phase, each below all that it reads."""
    from dslc.compiler.ir.graph import Input, Node

    depth: dict[Node | Input, int] = {}
    for source in graph.inputs:
        depth[source] = 0
    for node in graph.nodes:
        depth[node] = 1 + max((depth[value.producer] for value in node.inputs), default=-1)
    filled: dict[int, int] = {}
    at: dict[Node | Input, tuple[int, int]] = {}
    for item, row in depth.items():
        column = filled.get(row, 0)
        filled[row] = column + 1
        at[item] = (_GAP + column * (_WIDTH + _GAP), _GAP + row * (_HEIGHT + _GAP))
    edges = [
        f'<path d="M{at[value.producer][0] + _WIDTH // 2} {at[value.producer][1] + _HEIGHT} '
        f'L{at[node][0] + _WIDTH // 2} {at[node][1]}"/>'
        for node in graph.nodes
        for value in node.inputs
    ]
    boxes: list[str] = []
    for item, (x, y) in at.items():
        phase = item.phase.value if isinstance(item, Node) else "input"
        title = item.op.name if isinstance(item, Node) else f"{item.kind.value} {item.name}"
        types = item.types if isinstance(item, Node) else (item.value.type,)
        below = ", ".join(map(str, types))
        boxes.append(
            f"<g><title>{escape(f'{item.name}: {title} : {below}')}</title>"
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{_COLORS[phase]}"/>'
            f'<text x="{x + 8}" y="{y + 17}">{escape(_cut(title))}</text>'
            f'<text x="{x + 8}" y="{y + 33}" fill="#666">{escape(_cut(below))}</text></g>'
        )
    width = max((x for x, _ in at.values()), default=0) + _WIDTH + _GAP
    height = max((y for _, y in at.values()), default=0) + _HEIGHT + _GAP
    return (
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" font-family="monospace" font-size="12">',
                f'<rect width="{width}" height="{height}" fill="white"/>',
                '<g stroke="#999" fill="none">',
                *edges,
                '</g><g stroke-width="0">',
                *boxes,
                "</g></svg>",
            ]
        )
        + "\n"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 25 else f"{text[:24]}…"
