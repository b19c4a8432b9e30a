"""The tokens of a source, as the lexer passes them to the parser and to the formatter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dslc.dsl.diagnostics import Diagnostic
from dslc.dsl.span import Source, Span


class Token(NamedTuple):
    """``kind`` is a terminal of the grammar, ``$END``, or ``BAD``."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class Tokens:
    """The tokens of a source; the last is ``$END``.

    ``docs`` and ``comments`` hold the texts of `##` lines and all comments, by the index of the token that follows
    them; ``bad`` holds the diagnostic of each BAD token by its index.
    """

    source: Source
    items: list[Token] = field(default_factory=list)
    docs: dict[int, list[str]] = field(default_factory=dict)
    comments: dict[int, list[Token]] = field(default_factory=dict)
    bad: dict[int, Diagnostic] = field(default_factory=dict)

    def span(self, first: int, last: int | None = None) -> Span:
        """The span from the start of one token to the end of another."""
        return Span(self.source, self.items[first].start, self.items[first if last is None else last].end)
