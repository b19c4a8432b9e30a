"""Where the parser stopped, and what it would have accepted there, in the user's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.dsl.diagnostics import Diagnostic, Label
from dslc.dsl.tokens import Token, Tokens

ENDS: Final = ("_NL", "$END", "}")
COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
OPERATORS: Final = ("+", "-", "*", "/", "//", "%", "^", *COMPARISONS, "and", "or", "..")
EXPRESSION: Final = ("NAME", "NUMBER", "STRING", "(", "[", "true", "false", "-", "not")
DECLARATIONS: Final = ("use", "const", "block", "model")
STATEMENTS: Final = ("layer", "param", "state", "buffer", "for", "scan", "if", "return", "yield", "check")


@dataclass(frozen=True, slots=True)
class Place:
    """The place where the parser stopped: in the ``unit`` (item, stmt or entry) that begins at token ``first``, at
    ``index``. ``accepted`` contains every terminal that would be valid there."""

    tokens: Tokens
    first: int
    index: int
    unit: str
    accepted: frozenset[str]

    @property
    def token(self) -> Token:
        return self.tokens.items[self.index]

    @property
    def before(self) -> Token | None:
        """The previous token, if it belongs to the same unit."""
        return self.tokens.items[self.index - 1] if self.index > self.first else None

    @property
    def start(self) -> Token:
        return self.tokens.items[self.first]

    @property
    def in_brackets(self) -> bool:
        depth = 0
        for token in self.tokens.items[self.first : self.index]:
            depth += (token.kind in ("(", "[")) - (token.kind in (")", "]"))
        return depth > 0

    def error(self, title: str, label: str, help: str | None, at: int | None = None) -> Diagnostic:
        index = self.index if at is None else at
        return Diagnostic("E0001", title, Label(self.tokens.span(index), label), help=help)


def describe(token: Token) -> str:
    """A token in the user's words."""
    if token.kind == "_NL":
        return "`;`" if token.text == ";" else "the end of the line"
    if token.kind == "$END":
        return "the end of the file"
    if token.kind == "STRING":
        return "a text"
    return f"`{token.text or token.kind}`"


def expected(accepted: frozenset[str], ends: bool) -> list[str]:
    """The accepted terminals in the user's terms, the most likely first."""
    rest = set(accepted)
    words: list[str] = []
    if {"NUMBER", "NAME", "("} <= rest:
        words.append("a value")
        rest -= set(EXPRESSION)
    elif "NAME" in rest:
        words.append("a name")
    if {"+", "*"} <= rest:
        # An operator can follow almost everything, so the other terminals are more informative.
        others = rest - {*OPERATORS, "@", "|>", "as", "if", "(", "[", ".", "UNIT"}
        rest = others or {"an operator"}
    if rest & set(ENDS):
        if ends:
            words.append("the end of the statement")
        rest -= set(ENDS)
    names = {"NUMBER": "a number", "STRING": "a string in quotes", "an operator": "an operator", "UNIT": "a unit"}
    words += [names.get(kind, f"`{kind}`") for kind in sorted(rest - {"NAME"}, key=lambda k: (k.isalpha(), k))]
    return words or ["more"]


def listed(words: list[str]) -> str:
    words = words[:5]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
