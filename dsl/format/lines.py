"""Lays out one segment in lines: keeps the writer's line breaks, and breaks lines that would be too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.dsl.format.spacing import Spacing
from dslc.dsl.tokens import Token, Tokens

_FARTHEST_PIPE: Final = 48  # stages are not aligned with a first `|>` further to the right
# Possible line breaks, the best first: before the tokens of _BEFORE, after those of _AFTER.
_BEFORE: Final = {"|>": 0, "->": 0}
_AFTER: Final = {
    ",": 1,
    "or": 2,
    "and": 2,
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">", "+", "-"), 3),
    **dict.fromkeys(("*", "/", "//", "%", "@"), 4),
    "=": 5,
}


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens ``first`` to ``end`` (exclusive) that begin on a new line: a statement, a declaration, the head of a body
    up to its `{`, or the `}` after a body. ``pad`` spaces are added before token ``pad_before``."""

    first: int
    end: int
    depth: int
    in_section: bool
    pad_before: int = -1
    pad: int = 0


@dataclass(slots=True)
class _Bracket:
    """An open bracket, or the segment itself: the indentation of its line, and the column of the first `|>` directly
    inside."""

    indent: int
    pipe: int | None = None


def lay_out(tokens: Tokens, spacing: Spacing, segment: Segment, indent: int, width: int) -> list[str]:
    """The lines of a segment, indented; comments inside it follow a line or are on lines before one."""
    return _Layout(tokens, spacing, segment, indent, width).run()


class _Layout:
    def __init__(self, tokens: Tokens, spacing: Spacing, segment: Segment, indent: int, width: int) -> None:
        self.tokens = tokens
        self.items = tokens.items
        self.spacing = spacing
        self.segment = segment
        self.width = width
        head = self.items[segment.first].kind in ("block", "model") or self.items[segment.end - 1].kind == "{"
        self.step = 4 if head else 2
        self.base = indent
        self.brackets = [_Bracket(indent)]
        self.lines: list[str] = []

    def run(self) -> list[str]:
        at = self.segment.first
        while at < self.segment.end:
            indent = self.base if at == self.segment.first else self._indent(at)
            if at > self.segment.first:
                self._comments(at, indent)
            end = self._end_of_line(at, indent)
            self.lines.append(" " * indent + self._write(at, end, indent))
            at = end
        return self.lines

    def _comments(self, at: int, indent: int) -> None:
        """The comments before a token inside the segment."""
        comments = self.tokens.comments.get(at, [])
        if comments and self._is_behind(at, comments[0]):
            self.lines[-1] += "  " + comments[0].text
            comments = comments[1:]
        self.lines += [" " * indent + comment.text for comment in comments]

    def _is_behind(self, at: int, comment: Token) -> bool:
        return "\n" not in self.tokens.source.text[self.items[at - 1].end : comment.start]

    def _indent(self, at: int) -> int:
        """The indentation of a line that begins with a token other than the segment's first."""
        kind = self.items[at].kind
        bracket = self.brackets[-1]
        if kind in (")", "]", "}"):
            return bracket.indent
        if kind in ("else", "{") and len(self.brackets) == 1:
            return self.base
        if kind == "|>":
            return bracket.pipe if bracket.pipe is not None else bracket.indent + 2
        return bracket.indent + self.step

    def _gap(self, index: int) -> int:
        return self.spacing.gap(index) + (self.segment.pad if index == self.segment.pad_before else 0)

    def _end_of_line(self, at: int, indent: int) -> int:
        """The end of the line that begins at a token: at the writer's break, or earlier if the line would be too
        long."""
        column = indent + len(self.spacing.text(at))
        depth = braces = 0
        best: tuple[int, int] | None = None  # (cost, index): a lower cost is better
        index = at
        while True:
            kind = self.items[index].kind
            if kind in ("(", "[", "{"):
                depth += 1
                braces += kind == "{"
            elif kind in (")", "]", "}") and index > at:
                depth -= 1
                braces -= kind == "}"
            index += 1
            if index == self.segment.end or self.spacing.breaks[index] or index in self.tokens.comments:
                return index
            cost = self._cost(index)
            if cost is not None and braces == 0 and column <= self.width:
                score = 2 * depth + cost
                if best is None or score <= best[0]:
                    best = (score, index)
            column += self._gap(index) + len(self.spacing.text(index))
            if column > self.width and best is not None:
                return best[1]

    def _cost(self, index: int) -> int | None:
        """The cost of a break before a token; None if a break is not allowed there."""
        kind, before = self.items[index].kind, self.items[index - 1].kind
        if kind in _BEFORE:
            return _BEFORE[kind]
        if before == "=" and index - 1 in self.spacing.kwarg_equals:
            return None
        if before in _AFTER and self.spacing.gap(index) == 1:
            return _AFTER[before]
        return None

    def _write(self, at: int, end: int, indent: int) -> str:
        """The text of a line; records its brackets and pipes."""
        parts = [self.spacing.text(at)]
        column = indent
        for index in range(at, end):
            kind = self.items[index].kind
            if index > at:
                parts.append(" " * self._gap(index) + self.spacing.text(index))
                column += self._gap(index)
            if kind in ("(", "[", "{"):
                self.brackets.append(_Bracket(indent))
            elif kind in (")", "]", "}") and len(self.brackets) > 1:
                self.brackets.pop()
            elif kind == "|>" and self.brackets[-1].pipe is None and column <= _FARTHEST_PIPE:
                self.brackets[-1].pipe = column
            column += len(self.spacing.text(index))
        return "".join(parts)
