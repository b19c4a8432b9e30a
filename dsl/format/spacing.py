"""Decides which tokens have spaces between them."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from dslc.dsl.lexer import SOFT_WORDS
from dslc.dsl.syntax import File, TensorTypeExpr, Tree
from dslc.dsl.tokens import Tokens

_OPERANDS: Final = frozenset({"NAME", "NUMBER", "UNIT", "STRING", ")", "]", "true", "false"})
_PRODUCTS: Final = frozenset({"*", "/", "//", "%"})
_TIGHT: Final = frozenset({"^", "..", "."})


class Spacing:
    """For each token: the spaces before it (``gap``), its text, and whether the writer began a line with it."""

    def __init__(self, tokens: Tokens, file: File) -> None:
        self.items = tokens.items
        self.breaks = [False] * len(self.items)
        self._gaps = [0] * len(self.items)
        self.kwarg_equals: set[int] = set()
        text = tokens.source.text
        in_shape = self._in_shapes(file)
        brackets: list[str] = []
        openings: list[int] = []
        attribute = -1  # the last token, so far, of the latest attribute
        operand = False  # whether the previous token ends an operand
        tight_next = False
        in_use = False
        for i, token in enumerate(self.items):
            kind = token.kind
            before = self.items[i - 1] if i else None
            gap_text = text[before.end : token.start] if before else ""
            self.breaks[i] = "\n" in gap_text and kind != "_NL" and not (before and before.kind == "_NL")
            if i not in tokens.comments and before is not None and self._joins(before.kind, kind):
                self.breaks[i] = False
            gap = 1
            tight_after = False
            if before is None or tight_next or kind in (",", ")", "]", ".", "_NL"):
                gap = 0
            if kind in ("(", "["):
                gap = 0 if gap == 0 or (operand and not in_use) else 1
                brackets.append(kind)
                openings.append(i)
                tight_after = True
            elif kind == "{":
                brackets.append(kind)
                openings.append(i)
            elif kind in (")", "]", "}") and brackets:
                brackets.pop()
                if openings.pop() == attribute + 1:
                    attribute = i  # its arguments
                if kind == "}" and before is not None and before.kind == "{":
                    gap = 0
            elif kind in _TIGHT:
                gap, tight_after = 0, True
            elif kind == ":":
                gap, tight_after = int(before is not None and before.kind == ","), brackets[-1:] == ["["]
            elif kind == "=":
                named = i >= 2 and self.items[i - 2].kind in ("(", ",") and brackets[-1:] == ["("]
                if named:
                    gap, tight_after = 0, True
                    self.kwarg_equals.add(i)
            elif kind == "-" and not operand:
                tight_after = True
            elif kind == "@" and (not operand or attribute == i - 1):
                tight_after = True
                attribute = i + 1
            elif kind in _PRODUCTS:
                following = self.items[i + 1]
                written_tight = gap_text == "" and following.start == token.end
                if in_shape[i] or written_tight:
                    gap, tight_after = 0, True
            self._gaps[i] = gap
            operand = kind in _OPERANDS or (kind in SOFT_WORDS and not operand and not self._is_keyword(i))
            if kind == "use" or kind == "_NL":
                in_use = kind == "use"
            tight_next = tight_after

    @staticmethod
    def _joins(before: str, kind: str) -> bool:
        """`{` and `else` are on the line of the preceding token, `}` on that of its `{` if the body is empty."""
        return kind == "{" or (before, kind) in (("}", "else"), ("{", "}"))

    def gap(self, index: int) -> int:
        return self._gaps[index]

    def text(self, index: int) -> str:
        token = self.items[index]
        return ";" if token.kind == "_NL" else token.text

    def _is_keyword(self, index: int) -> bool:
        """True if a soft keyword that does not follow an operand is a keyword."""
        token = self.items[index]
        if token.kind == "nn":
            return index == 0
        return token.kind == "dim" and self.items[index - 1].kind in ("_NL", ")") and self._at_top(index)

    def _at_top(self, index: int) -> bool:
        following = self.items[index + 1].kind
        return following == "NAME" or following in SOFT_WORDS

    def _in_shapes(self, file: File) -> list[bool]:
        """Marks the tokens inside the brackets of a tensor's type."""
        spans: list[tuple[int, int]] = []
        stack: list[Tree] = [file]
        while stack:
            tree = stack.pop()
            if isinstance(tree, TensorTypeExpr):
                spans.append((tree.span.start, tree.span.end))
            for part in fields(tree):
                value = getattr(tree, part.name)
                if isinstance(value, Tree):
                    stack.append(value)
                elif isinstance(value, tuple):
                    stack += [item for item in value if isinstance(item, Tree)]
        spans.sort()
        inside = [False] * len(self.items)
        at = 0
        for i, token in enumerate(self.items):
            while at < len(spans) and spans[at][1] <= token.start:
                at += 1
            inside[i] = at < len(spans) and spans[at][0] <= token.start < spans[at][1]
        return inside
