"""The canonical layout of a source.

The layout works on tokens. The writer's line breaks inside an expression are kept, and a line that is too long is
broken further. Indentation and spaces are always normalised. Each statement has its own line, unless the whole body is
on one line and fits (`{ a = 1; b = 2 }`). In sections, the `=` and `{` of neighbouring lines are aligned. `*`, `/`,
`//` and `%` are written without spaces in shapes; elsewhere they keep their spaces: on both sides or on none. Comments
stay in place: after a line, two spaces away, or on their own lines. At most one blank line is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.format.lines import Segment, lay_out
from dslc.dsl.format.spacing import Spacing
from dslc.dsl.lexer import lex
from dslc.dsl.limits import MAX_SOURCE_BYTES
from dslc.dsl.parser import parse, parse_tokens
from dslc.dsl.span import Source, Span
from dslc.dsl.tables import load_tables
from dslc.dsl.tokens import Token, Tokens

WIDTH: Final = 100
INDENT: Final = 2


def format_file(source: Source) -> str:
    """The source in canonical layout, ending in a newline. Formatting it again changes nothing, and its tree and
    comments are those of ``source``: this is checked, and a difference raises AssertionError. Raises CompileError if
    the source does not parse, or if the result would exceed the size limit of a source (E0002)."""
    tokens = lex(source, load_tables())
    file = parse_tokens(tokens)
    text = _Formatter(tokens, Spacing(tokens, file)).run()
    if len(text.encode()) > MAX_SOURCE_BYTES:
        title = f"the source would be longer than {MAX_SOURCE_BYTES} bytes when formatted"
        help = "repeat parts with `for` and `block`"
        raise CompileError([Diagnostic("E0002", title, Label(Span(source, 0, 0), ""), help=help)])
    again = Source(source.path, text)
    if parse(again) != file or _comments(lex(again, load_tables())) != _comments(tokens):
        raise AssertionError(f"formatting would change the meaning of {source.path}; it was left as it is")
    return text


def _comments(tokens: Tokens) -> list[str]:
    return [comment.text for index in sorted(tokens.comments) for comment in tokens.comments[index]]


class _Formatter:
    def __init__(self, tokens: Tokens, spacing: Spacing) -> None:
        self.tokens = tokens
        self.items = tokens.items
        self.spacing = spacing
        self.lines: list[str] = []

    def run(self) -> str:
        segments = self._aligned(self._segments())
        for segment in segments:
            opened = segment.first > 0 and self.items[segment.first - 1].kind == "{"
            closing = self.items[segment.first].kind == "}"
            for comment in self._own_lines(segment.first):
                self._blank_before(comment.start, opened)
                self.lines.append(" " * INDENT * (segment.depth + closing) + comment.text)
                opened = False
            if self.items[segment.first].kind == "$END":
                break
            self._blank_before(self.items[segment.first].start, opened or closing)
            self.lines += lay_out(self.tokens, self.spacing, segment, INDENT * segment.depth, WIDTH)
            trailing = self._trailing(segment.end)
            if trailing is not None:
                self.lines[-1] += "  " + trailing.text
        return "\n".join(self.lines) + "\n"

    def _segments(self) -> list[Segment]:
        """The file split into segments; the last contains only `$END`."""
        segments: list[Segment] = []
        first, depth, flat_until = 0, 0, -1
        sections: list[bool] = []  # for each open body, whether it is a section's body
        in_section = False
        for index, token in enumerate(self.items):
            if index <= flat_until or index < first:
                continue
            if token.kind == "{":
                closing = self._fits_flat(first, index, INDENT * depth)
                if closing is not None:
                    flat_until = closing
                    continue
                segments.append(Segment(first, index + 1, depth, in_section))
                head = self.items[first]
                sections.append(in_section)
                in_section = in_section or (depth == 0 and head.kind == "NAME")
                first, depth = index + 1, depth + 1
            elif token.kind in ("_NL", "}", "$END"):
                if index > first:
                    segments.append(Segment(first, index, depth, in_section))
                first = index + (token.kind == "_NL")
                if token.kind == "}":
                    depth -= 1
                    in_section = sections.pop()
                    # The rest of the line, such as `else {`, belongs to the same segment.
        segments.append(Segment(len(self.items) - 1, len(self.items), 0, False))
        return segments

    def _fits_flat(self, first: int, opening: int, indent: int) -> int | None:
        """The index of the `}` that closes a body written on one line, if the body may stay on one line."""
        closing, depth = opening, 0
        while True:
            kind = self.items[closing].kind
            depth += (kind == "{") - (kind == "}")
            if depth == 0:
                break
            closing += 1
        if closing == opening + 1 and closing not in self.tokens.comments:
            return closing  # `{}` is never split
        if any(self.spacing.breaks[i] or i in self.tokens.comments for i in range(opening + 1, closing + 1)):
            return None
        start, end = opening, closing + 1
        while start > first and not self.spacing.breaks[start]:
            start -= 1
        while self.items[end].kind not in ("_NL", "$END", "}", "{") and not self.spacing.breaks[end]:
            end += 1
        room = WIDTH - indent - (4 if start > first else 0)
        width = 0
        for i in range(start, end):
            width += self.spacing.gap(i) * (i > start) + len(self.spacing.text(i))
            if width > room:
                return None
        return closing

    def _aligned(self, segments: list[Segment]) -> list[Segment]:
        """Align the `=` or `{` of neighbouring one-line entries, and those of one-line sections."""
        result = list(segments)
        run: list[tuple[int, int, int]] = []  # segment, token to align, width before it

        def finish() -> None:
            widest = max((width for _, _, width in run), default=0)
            for number, at, width in run:
                result[number] = replace(segments[number], pad_before=at, pad=widest - width)
            run.clear()

        for number, segment in enumerate(segments):
            at = self._column_token(segment)
            own = self._own_lines(segment.first)
            start = own[0].start if own else self.items[segment.first].start
            if at is None or self._blank_lines_before(start) or (run and segments[run[-1][0]].depth != segment.depth):
                finish()
            if at is not None:
                width = sum(len(self.spacing.text(i)) + self.spacing.gap(i) for i in range(segment.first, at))
                run.append((number, at, width))
        finish()
        return result

    def _column_token(self, segment: Segment) -> int | None:
        """The `=` or `{` of a line that is aligned."""
        if self.items[segment.end - 1].kind == "{" or self.items[segment.first].kind != "NAME":
            return None
        if not segment.in_section:
            flat = self.items[min(segment.first + 1, segment.end - 1)].kind == "{"
            return segment.first + 1 if segment.depth == 0 and flat else None
        for index in range(segment.first, segment.end):
            if self.items[index].kind in ("=", "{"):
                return index
        return None

    def _own_lines(self, index: int) -> list[Token]:
        """The comments before a token that are on lines of their own."""
        comments = self.tokens.comments.get(index, [])
        return comments[1:] if self._trailing(index) is not None else comments

    def _trailing(self, index: int) -> Token | None:
        """The comment on the line of the token (ignoring line ends) before ``index``."""
        if index < len(self.items) and self.items[index].kind == "_NL":
            index += 1
        comments = self.tokens.comments.get(index, [])
        before = index - 1
        while before >= 0 and self.items[before].kind == "_NL":
            before -= 1
        if not comments or before < 0:
            return None
        gap = self.tokens.source.text[self.items[before].end : comments[0].start]
        return None if "\n" in gap else comments[0]

    def _blank_before(self, start: int, never: bool) -> None:
        if self.lines and not never and self._blank_lines_before(start):
            self.lines.append("")

    def _blank_lines_before(self, start: int) -> bool:
        """True if a blank line is directly above the place."""
        text = self.tokens.source.text
        lines = 0
        while start > 0 and text[start - 1] in " \t\r\n;\ufeff":
            start -= 1
            lines += text[start] == "\n"
        return lines > 1
