"""Builds the trees of expressions from productions of the grammar; ``build_tree.py`` builds files and statements.

Each method gets its children (tokens, trees, lists) and the indices of its first and last token. Constructs that the
grammar accepts but the language does not (too large a number, a label that no call carries) are reported in ``found``
and replaced by a harmless value, so that the rest of the file is still read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from dslc.dsl import syntax as t
from dslc.dsl.diagnostics import Diagnostic, Label
from dslc.dsl.limits import MAX_INTEGER
from dslc.dsl.other_names import short
from dslc.dsl.span import Span
from dslc.dsl.tokens import Token, Tokens

_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class ExpressionBuilder:
    """Creates the expressions of one file."""

    def __init__(self, tokens: Tokens, found: list[Diagnostic]) -> None:
        self.tokens = tokens
        self.found = found

    def action(self, name: str) -> Callable[[list[Any], int, int], Any]:
        """The method for an action of the grammar."""
        method: Callable[[list[Any], int, int], Any] = getattr(self, f"_{name}")
        return method

    def _span(self, first: int, last: int) -> Span:
        return self.tokens.span(first, last)

    def _at(self, token: Token) -> Span:
        return Span(self.tokens.source, token.start, token.end)

    def _error(self, code: str, title: str, label: Label, help: str | None) -> None:
        self.found.append(Diagnostic(code, title, label, help=help))

    def _choose(self, c: list[Any], first: int, last: int) -> t.Choose:
        then, condition, other = c
        return t.Choose(condition, then, other, span=self._span(first, last))

    def _labelled(self, c: list[Any], first: int, last: int) -> t.Expr:
        call, label = c
        if isinstance(call, t.Call) and call.label is None:
            return replace(call, label=label.text, label_span=self._at(label), span=self._span(first, last))
        help = "put the call and its label in parentheses: `(f(x) as a)`"
        if isinstance(call, t.Name):
            help = f"give `{call.name}` its label at its definition: `{call.name} = f(x) as {label.text}`"
        last_of = call
        while isinstance(last_of, t.Binary):
            op, last_of = last_of.op, last_of.right
        if last_of is not call and isinstance(last_of, t.Call) and last_of.label is None:
            text = short(last_of.span.text, "f(x)")
            help = f"put the call and its label in parentheses: `{op} ({text} as {label.text})`"
        self._error("E0210", "only a call can carry a label", Label(self._at(label), ""), help)
        expr: t.Expr = call
        return expr

    def _pipe(self, c: list[Any], first: int, last: int) -> t.Pipe:
        value, attrs, stage, label = c
        span = self._span(first, last)
        if label is None:
            return t.Pipe(value, stage, attrs=attrs, span=span)
        if isinstance(stage, t.Call):
            labelled = stage.span.to(self._at(label))
            stage = replace(stage, label=label.text, label_span=self._at(label), span=labelled)
            return t.Pipe(value, stage, attrs=attrs, span=span)
        return t.Pipe(value, stage, label.text, self._at(label), attrs, span=span)

    def _binary(self, c: list[Any], first: int, last: int) -> t.Binary:
        return t.Binary(c[1].text, c[0], c[2], self._at(c[1]), span=self._span(first, last))

    def _unary(self, c: list[Any], first: int, last: int) -> t.Unary:
        return t.Unary(c[0].text, c[1], span=self._span(first, last))

    def _range(self, c: list[Any], first: int, last: int) -> t.Range:
        return t.Range(c[0], c[1], span=self._span(first, last))

    def _call(self, c: list[Any], first: int, last: int) -> t.Call:
        return t.Call(c[0], c[1], span=self._span(first, last))

    def _args(self, c: list[Any], first: int, last: int) -> tuple[t.Arg, ...]:
        return tuple(arg for arg in c if arg is not None)

    def _arg(self, c: list[Any], first: int, last: int) -> t.Arg:
        return t.Arg(c[0].text if c[0] is not None else None, c[1], span=self._span(first, last))

    def _field(self, c: list[Any], first: int, last: int) -> t.Field:
        return t.Field(c[0], c[1].text, span=self._span(first, last))

    def _index(self, c: list[Any], first: int, last: int) -> t.Index:
        return t.Index(c[0], tuple(c[1:]), span=self._span(first, last))

    def _slice(self, c: list[Any], first: int, last: int) -> t.Slice:
        return t.Slice(c[0], c[1], c[2], span=self._span(first, last))

    def _rest(self, c: list[Any], first: int, last: int) -> t.Rest:
        return t.Rest(span=self._span(first, last))

    def _name(self, c: list[Any], first: int, last: int) -> t.Name:
        return t.Name(c[0].text, span=self._span(first, last))

    def _true(self, c: list[Any], first: int, last: int) -> t.Bool:
        return t.Bool(True, span=self._span(first, last))

    def _false(self, c: list[Any], first: int, last: int) -> t.Bool:
        return t.Bool(False, span=self._span(first, last))

    def _paren(self, c: list[Any], first: int, last: int) -> Any:
        return replace(c[0], span=self._span(first, last))

    def _tuple(self, c: list[Any], first: int, last: int) -> t.Tuple:
        return t.Tuple(_present(c), span=self._span(first, last))

    def _list(self, c: list[Any], first: int, last: int) -> t.List:
        return t.List(_present(c), span=self._span(first, last))

    def _clause(self, c: list[Any], first: int, last: int) -> list[Any]:
        return c

    def _comprehension(self, c: list[Any], first: int, last: int) -> t.Comprehension:
        item, *outer, inner = c
        span = self._span(first, last)
        names, values, condition = inner
        found = t.Comprehension(item, names, values, condition, span=span)
        for names, values, condition in reversed(outer):
            found = t.Comprehension(found, names, values, condition, joined=True, span=span)
        return found

    def _string(self, c: list[Any], first: int, last: int) -> t.String:
        return t.String(self._text(c[0]), span=self._span(first, last))

    def _number(self, c: list[Any], first: int, last: int) -> t.Number:
        digits, unit = c[0].text, c[1].text if c[1] is not None else None
        value: int | float
        if digits.replace("_", "").isdigit():
            value = int(digits)
            if value > MAX_INTEGER:
                label = Label(self._at(c[0]), f"the limit is {MAX_INTEGER}, 2^63 - 1")
                help = "if you mean a float, write 1e30"
                if 2**63 < value < 2**64:  # -2^63 cannot be written either
                    help += f"; the i64 with the bits of this u64 is {value - 2**64}"
                self._error("E0005", "an integer that is too large", label, help)
                value = 0
        else:
            value = float(digits)
            is_zero = not any(digit in "123456789" for digit in digits.lower().partition("e")[0])
            if math.isinf(value) or (value == 0 and not is_zero):
                what = "large" if math.isinf(value) else "small"
                label = Label(self._at(c[0]), "")
                help = "floats go from 5e-324 to 1.7976931348623157e308"
                self._error("E0005", f"a float that is too {what}", label, help)
                value = 0.0
        return t.Number(value, unit, span=self._span(first, last))

    def _text(self, token: Token) -> str:
        """The value of a string token."""
        raw = token.text[1:-1]
        if "\\" not in raw:
            return raw
        parts: list[str] = []
        chars = iter(enumerate(raw))
        for _, char in chars:
            if char != "\\":
                parts.append(char)
                continue
            at, escaped = next(chars)
            if escaped not in _ESCAPES:
                place = Span(self.tokens.source, token.start + at, token.start + at + 2)
                help = r"the escapes are \n, \t, \" and \\"
                self._error("E0001", f"`\\{escaped}` is not an escape sequence", Label(place, ""), help)
            parts.append(_ESCAPES.get(escaped, ""))
        return "".join(parts)


def _present(c: Sequence[t.Expr | None]) -> tuple[t.Expr, ...]:
    return tuple(item for item in c if item is not None)
