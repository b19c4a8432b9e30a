"""Draws a graph as an SVG: one box per name path and phase, from the inputs down to the results; blocks are framed.

Not a pass: it reads a graph and returns text. Nodes of one path are joined if that makes no cycle; parameters are
written into the box that reads them. If a graph has more boxes than a page can hold, it is drawn by shorter paths. If
these are still too many, the drawing is cut off with a message. The text depends only on the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from dslc.base.visible import one_line, visible
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, Value
from dslc.compiler.ops.compound.fused import Fused, steps

MAX_BOXES: Final = 400
_WIDTH: Final = 208
_LINE: Final = 16
_PAD: Final = 10
_GAP_X: Final = 28
_GAP_Y: Final = 40
_LETTERS: Final = 29  # letters that fit into a box
_MAX_LINES: Final = 6
_STYLES: Final = ("forward", "backward", "update", "data", "result")
_LIGHT: Final = (  # fill and border; the border's colour is that of the lines that lead to the box
    ("#e8f0fe", "#6b8fd6"), ("#fdeee4", "#d9895b"), ("#e6f4ea", "#5faa77"), ("#f4f4f5", "#a1a1aa"),
    ("#f4f4f5", "#a1a1aa"),
)  # fmt: skip
_DARK: Final = (
    ("#1c2a44", "#7b9fe6"), ("#43291a", "#d9895b"), ("#193325", "#5faa77"), ("#27272a", "#71717a"),
    ("#27272a", "#71717a"),
)  # fmt: skip
#: Of the page, titles, other text, the message, the frames of blocks.
_INK: Final = (
    ("#ffffff", "#18181b", "#52525b", "#b45309", "#d4d4d8"), ("#18181b", "#fafafa", "#a1a1aa", "#fbbf24", "#52525b"),
)  # fmt: skip
_SWEEPS: Final = 4


@dataclass(eq=False)
class _Box:
    title: str
    style: str
    row: int
    largest: int = 0
    lines: list[str] = field(default_factory=list)
    above: dict[_Box, None] = field(default_factory=dict)
    below: dict[_Box, None] = field(default_factory=dict)
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * (1 + len(self.lines))


def svg(graph: Graph, *, styled: bool = True) -> str:
    """The picture, a whole SVG document that ends with a newline; without its colours unless ``styled``, for a page
    that holds ``css()``. Linear in nodes except for sorting boxes."""
    longest = max((n.name.count(".") + 1 for n in graph.nodes), default=1)
    message = ""
    for length in range(longest, 0, -1):
        boxes = _boxes(graph, length)
        if len(boxes) <= MAX_BOXES:
            message = (
                ""
                if length == longest
                else f"{len(graph.nodes)} nodes, joined by the first {length} parts of their names"
            )
            break
    else:
        message = f"the first {MAX_BOXES} of {len(boxes)} boxes, {len(graph.nodes)} nodes in all"
        boxes = _cut(boxes)
    width, height = _place(boxes)
    return _drawn(boxes, width, height, message, styled)


def _boxes(graph: Graph, length: int) -> list[_Box]:
    """Boxes in topological order, each in a row below those of its operands."""
    boxes: list[_Box] = []
    box_of: dict[Value, _Box] = {}
    for source in graph.inputs:
        if source.kind in (Kind.DATA, Kind.STATE):
            box = _Box(source.name, "data", 0, lines=[str(source.value.type)])
            box_of[source.value] = box
            boxes.append(box)
    latest: dict[tuple[str, Phase], _Box] = {}
    for node in graph.nodes:
        name = ".".join(node.name.split(".")[:length])
        key = (name, node.phase)
        above = dict.fromkeys(box_of[v] for v in node.inputs if v in box_of)
        box = latest.get(key) or _Box("", "", -1)
        if any(other is not box and other.row >= box.row for other in above) or box.row < 0:
            box = _Box(name or node.op.name, node.phase.value, 1 + max((b.row for b in above), default=0))
            latest[key] = box
            boxes.append(box)
        for other in above:
            if other is not box:
                box.above[other] = None
                other.below[box] = None
        box_of.update(dict.fromkeys(node.outputs, box))
        _describe(box, node)
    for name, value in graph.outputs.items():
        if value in box_of:
            maker = box_of[value]
            box = _Box(name, "result", maker.row + 1, lines=[str(value.type)], above={maker: None})
            maker.below[box] = None
            boxes.append(box)
    return boxes


def _describe(box: _Box, node: Node) -> None:
    """Describes the box: its ops, the parameters they read, and last the largest tensor that it makes."""
    result = box.lines.pop() if box.lines else ""
    ops = [name for name, _, _ in steps(node.attrs) if name != "full"] if isinstance(node.op, Fused) else [node.op.name]
    read = [v.producer for v in node.inputs if isinstance(v.producer, Input)]
    names = [f"{i.name.rpartition('.')[2]} {i.value.type}" for i in read if i.kind in (Kind.PARAM, Kind.BUFFER)]
    does = [] if node.op.view and box.lines else [" + ".join(ops)]
    for line in (*does, *(f"· {n}" for n in names)):
        if line in box.lines:
            continue
        if len(box.lines) < _MAX_LINES:
            box.lines.append(line)
        elif box.lines[-1] != "…":
            box.lines.append("…")
    size = max(_elements(v) for v in node.outputs)
    if not result or size >= box.largest:
        box.largest = size
        result = f"→ {max(node.outputs, key=_elements).type}"
    box.lines.append(result)


def _elements(value: Value) -> int:
    """Elements of a tensor; symbolic dims count as 1."""
    return math.prod(s for s in value.type.shape if isinstance(s, int))


def _cut(boxes: list[_Box]) -> list[_Box]:
    kept = set(boxes[:MAX_BOXES])
    for box in kept:
        box.above = {b: None for b in box.above if b in kept}
        box.below = {b: None for b in box.below if b in kept}
    return boxes[:MAX_BOXES]


def _place(boxes: Sequence[_Box]) -> tuple[float, float]:
    """Rows by depth; within a row, near the operands and readers (barycentres), in a few sweeps down and up."""
    rows: dict[int, list[_Box]] = {}
    for box in boxes:
        rows.setdefault(box.row, []).append(box)
    order = sorted(rows)
    for row in order:
        _spread(rows[row], [float(i) * (_WIDTH + _GAP_X) for i in range(len(rows[row]))])
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in order if down else reversed(order):
            wanted = []
            for box in rows[row]:
                near = box.above if down else box.below
                wanted.append(sum(b.x for b in near) / len(near) if near else box.x)
            _spread(rows[row], wanted)
    y = float(_GAP_Y)
    for row in order:
        for box in rows[row]:
            box.y = y
        y += max(b.height for b in rows[row]) + _GAP_Y
    left = min((b.x for b in boxes), default=0.0) - _GAP_X
    for box in boxes:
        box.x -= left
    return max((b.x for b in boxes), default=0.0) + _WIDTH + _GAP_X, y + _LINE


def _spread(row: list[_Box], wanted: Sequence[float]) -> None:
    """Sorts a row by the wanted places and pushes its boxes apart, around the mean of the wanted places."""
    pairs = sorted(zip(wanted, range(len(row))))
    row[:] = [row[i] for _, i in pairs]
    at = -float("inf")
    for (x, _), box in zip(pairs, row):
        at = max(at + _WIDTH + _GAP_X, x)
        box.x = at
    shift = sum(x for x, _ in pairs) / len(row) - sum(b.x for b in row) / len(row)
    for box in row:
        box.x += shift


def css() -> str:
    """The rules for the colours, for a light page and for a dark one. They hold in the picture only."""

    def rules(colours: Sequence[tuple[str, str]], ink: Sequence[str]) -> str:
        page, title, text, message, frame = ink
        found = {"page": f"fill:{page}", "title": f"fill:{title};font-weight:600", "text": f"fill:{text}"}
        found |= {"message": f"fill:{message}", "frame": f"fill:none;stroke:{frame};stroke-dasharray:4 3"}
        for style, (fill, stroke) in zip(_STYLES, colours):
            found |= {style: f"fill:{fill};stroke:{stroke}", f"to-{style}": f"stroke:{stroke}"}
        return "".join(f".graph .{name}{{{rule}}}" for name, rule in found.items())

    line = ".graph path{fill:none;stroke-opacity:.55;stroke-width:1.4}"
    dark = f"@media (prefers-color-scheme:dark){{{rules(_DARK, _INK[1])}}}"
    return f"{line}{rules(_LIGHT, _INK[0])}{dark}"


def _drawn(boxes: Sequence[_Box], width: float, height: float, message: str, styled: bool) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" class="graph" font-family="system-ui, sans-serif" font-size="12" '
        f'role="img" aria-label="graph of {len(boxes)} nodes">',
        *([f"<style>{css()}</style>"] if styled else []),
        f'<rect width="{width:.0f}" height="{height:.0f}" class="page"/>',
    ]
    lines += [line for group in _groups(boxes) for line in _frame(*group)]
    if message:
        lines.append(f'<text x="{_GAP_X}" y="{_GAP_Y / 2:.0f}" class="message">{escape(one_line(message))}</text>')
    for box in boxes:
        for other in box.above:
            x1, y1 = other.x + _WIDTH / 2, other.y + other.height
            x2, y2 = box.x + _WIDTH / 2, box.y
            bend = max(_GAP_Y / 2, (y2 - y1) / 3)
            lines.append(
                f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
                f'class="to-{box.style}"/>'
            )
    for box in boxes:
        lines += _box_lines(box)
    return "\n".join([*lines, "</svg>", ""])


def _groups(boxes: Sequence[_Box]) -> Iterator[tuple[str, list[_Box]]]:
    """The blocks whose boxes can be framed together: the name of a path before its last dot, and its boxes.

    Boxes of a block are framed in runs of neighbouring rows; a frame that would lie on a box of another block is left
    out.
    """
    runs: dict[tuple[str, str], list[list[_Box]]] = {}
    for box in sorted(boxes, key=lambda box: box.row):
        block = box.title.rpartition(".")[0]
        if not block or box.style in ("data", "result"):
            continue
        found = runs.setdefault((block, box.style), [[]])
        if found[-1] and box.row > found[-1][-1].row + 1:
            found.append([])
        found[-1].append(box)
    for (block, _), parts in runs.items():
        for part in parts:
            left, top, right, bottom = _around(part)
            inside = {id(box) for box in part}
            free = all(
                box.x >= right or box.x + _WIDTH <= left or box.y >= bottom or box.y + box.height <= top
                for box in boxes
                if id(box) not in inside
            )
            if len(part) > 1 and free:
                yield block, part


def _around(part: Sequence[_Box]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a frame; above the boxes it has room for its name."""
    left, right = min(box.x for box in part) - _PAD, max(box.x for box in part) + _WIDTH + _PAD
    return left, min(box.y for box in part) - _LINE, right, max(box.y + box.height for box in part) + _PAD


def _frame(name: str, part: Sequence[_Box]) -> list[str]:
    left, top, right, bottom = _around(part)
    shown = escape(one_line(name))
    return [
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" height="{bottom - top:.0f}" rx="8" '
        f'class="frame"><title>{shown}</title></rect>',
        f'<text x="{left + 4:.0f}" y="{top + 11:.0f}" class="text" font-size="10">{shown}</text>',
    ]


def _box_lines(box: _Box) -> list[str]:
    radius = 16 if box.style in ("data", "result") else 6
    full = escape(visible("\n".join([box.title, *box.lines])))
    lines = [
        f"<g><title>{full}</title>",
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{_WIDTH}" height="{box.height}" rx="{radius}" '
        f'class="{box.style}"/>',
    ]
    for i, line in enumerate([box.title, *box.lines]):
        look = "title" if i == 0 else "text"
        y = box.y + _PAD + _LINE * (i + 0.75)
        lines.append(f'<text x="{box.x + _PAD:.0f}" y="{y:.0f}" class="{look}">{escape(one_line(_short(line)))}</text>')
    return [*lines, "</g>"]


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
