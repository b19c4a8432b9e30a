"""Draws a diagnostic: the lines of the source with underlined places and messages below them.

::

    error[E0301]: `+` cannot broadcast these shapes: axes 1, 2 and 3 differ
      --> resnet50.nn:16:15   in bottleneck(mid=128, s=2) at stage.1.unit.0
       |
    16 |   return relu(y + skip)
       |               -   ^^^^ [B, 256, 56, 56]
       |               |
       |               [B, 512, 28, 28]
       = help: project it

Columns are those of a terminal: tabs become spaces, and wide characters take two columns. Characters that a terminal
would obey or hide are replaced by their code points, so a line never looks different from its content.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dslc.base.visible import by_number, hidden, one_line
from dslc.dsl.span import Source, Span

TAB = 4
WIDEST = 120  # shown columns of a source line; a longer line is cut around its first label
_STYLES = {"error": "1;31", "warning": "1;33", "main": "1", "dim": "1;34"}

Place = tuple[Span, str, bool]  # a span, its text, and whether it is the main one


def draw(
    *,
    severity: str,
    title: str,
    place: Span,
    context: str | None,
    labels: Sequence[Place],
    help: str | None,
    color: bool,
) -> str:
    """The complete text of a diagnostic without a final newline; the first of ``labels`` is the main one."""
    pen = _Pen(severity, color)
    margin = len(str(max(span.line for span, _, _ in labels)))
    title = one_line(title)
    labels = [(span, one_line(text), main) for span, text, main in labels]
    head, _, rest = title.partition(":")
    lines = [pen.paint(head, severity) + pen.paint(f":{rest}", "main")]
    lines.append(
        f"{' ' * margin}{pen.paint('-->', 'dim')} {one_line(place)}" + (f"   {one_line(context)}" if context else "")
    )

    sources: list[Source] = []
    for span, _, _ in labels:
        if span.source not in sources:
            sources.append(span.source)
    for source in sources:
        here = [label for label in labels if label[0].source == source]
        if source is not sources[0]:
            lines.append(f"{' ' * margin}{pen.paint(':::', 'dim')} {one_line(here[0][0])}")
        lines.append(f"{' ' * margin} {pen.paint('|', 'dim')}")
        last = 0
        for number in sorted({span.line for span, _, _ in here}):
            if last and number > last + 1:
                lines.append(pen.paint("...", "dim"))
            last = number
            row = _Row(source.line(number), source.line_starts[number - 1], [p for p in here if p[0].line == number])
            lines.append(f"{pen.paint(f'{number:>{margin}} |', 'dim')} {row.text}".rstrip())
            lines += [f"{' ' * margin} {pen.paint('|', 'dim')} {text}".rstrip() for text in row.under(pen)]
    if help is not None:
        lines.append(f"{' ' * margin} {pen.paint('=', 'dim')} help: {one_line(help)}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Pen:
    severity: str
    color: bool

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.color and text else text


@dataclass(frozen=True, slots=True)
class _Mark:
    """An underline from column ``start`` to ``end`` (exclusive)."""

    start: int
    end: int
    text: str
    main: bool


class _Row:
    """One line of source as shown, and the marks below it."""

    def __init__(self, line: str, offset: int, places: Sequence[Place]) -> None:
        shown, columns = _shown(line)
        marks = []
        for span, text, main in places:
            start = columns[min(span.start - offset, len(line))]
            end = columns[min(max(span.end - offset, 0), len(line))]
            marks.append(_Mark(start, max(end, start + 1), text, main))
        first = min(mark.start for mark in marks)
        cut = 0
        if len(shown) > WIDEST:
            cut = max(0, min(first - WIDEST // 3, columns[-1] - WIDEST))
            shown = _window(shown, line, columns, cut)
        self.text = shown
        limit = cut + WIDEST if columns[-1] > WIDEST else max(columns[-1], *(mark.end for mark in marks))
        inside = [mark for mark in marks if mark.main or mark.start < limit]
        self.marks = [
            _Mark(min(m.start, limit) - cut, max(min(m.end, limit), min(m.start, limit) + 1) - cut, m.text, m.main)
            for m in sorted(inside, key=lambda m: (m.start, m.main))
        ]

    def under(self, pen: _Pen) -> list[str]:
        """The underlines, followed by the text of the last mark; then the texts of the others, right to left."""
        chars: dict[int, str] = {}
        for mark in sorted(self.marks, key=lambda m: m.main):
            for column in range(mark.start, mark.end):
                chars[column] = _styled(pen, "^" if mark.main else "-", mark.main)
        end = max(mark.end for mark in self.marks)
        line = "".join(chars.get(column, " ") for column in range(end))
        last = self.marks[-1]
        # A text follows the underlines only if it cannot be mistaken for a neighbour's text.
        disjoint = all(mark.end <= last.start for mark in self.marks[:-1])
        hanging = [mark for mark in self.marks if mark.text]
        if disjoint and last.text:
            line += " " + _styled(pen, last.text, last.main)
            hanging.remove(last)
        lines = [line]
        if hanging:
            lines.append(_bars(pen, hanging))
        while hanging:
            mark = hanging.pop()
            left = [other for other in hanging if other.start < mark.start]
            bars = _bars(pen, left)
            gap = mark.start - (max(other.start for other in left) + 1 if left else 0)
            lines.append(bars + " " * gap + _styled(pen, mark.text, mark.main))
        return lines


def _bars(pen: _Pen, marks: Sequence[_Mark]) -> str:
    main = {mark.start: mark.main for mark in marks}
    width = max(main, default=-1) + 1
    return "".join(_styled(pen, "|", main[c]) if c in main else " " for c in range(width))


def _styled(pen: _Pen, text: str, main: bool) -> str:
    return pen.paint(text, pen.severity if main else "dim")


def _shown(line: str) -> tuple[str, list[int]]:
    """The line as shown on a terminal, and the column of each of its characters and of its end."""
    if line.isascii() and line.isprintable():
        return line, list(range(len(line) + 1))
    parts: list[str] = []
    columns = [0]
    for char in line:
        if char == "\t":
            parts.append(" " * TAB)
            width = TAB
        elif hidden(char):
            parts.append(by_number(char))
            width = len(parts[-1])
        else:
            parts.append(char)
            width = 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        columns.append(columns[-1] + width)
    return "".join(parts), columns


def _window(shown: str, line: str, columns: list[int], cut: int) -> str:
    """About WIDEST columns of a long line from column ``cut`` on; dots mark the cuts."""
    inside = [i for i in range(len(line)) if cut <= columns[i] and columns[i + 1] <= cut + WIDEST]
    text = _shown(line[inside[0] : inside[-1] + 1])[0] if inside else ""
    text = " " * (columns[inside[0]] - cut if inside else 0) + text
    if cut > 0:
        text = "..." + text[3:]
    return text + ("..." if cut + WIDEST < columns[-1] else "")
