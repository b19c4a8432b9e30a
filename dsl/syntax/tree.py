"""The base of all parts of a tree: a span that equality ignores."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslc.dsl.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Any part of a source with a span."""

    span: Span = field(compare=False, repr=False)
