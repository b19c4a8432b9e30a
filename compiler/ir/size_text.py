"""Parses attributes and sizes as printed by ``format_attr``: numbers, strings, dtypes, polynomials, nested tuples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from dslc.compiler.ir.graph import NO_ATTRS, Attr
from dslc.compiler.ir.sizes import Dim, Poly, Size, floor_div, of_dim
from dslc.compiler.ir.types import DType

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<float>-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b)|nan\b)|(?P<int>\d+)"
    r'|(?P<name>[A-Za-z_]\w*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<sign>//|[-+*(),=]))'
)
_WORDS: Final[Mapping[str, Attr]] = {"True": True, "False": False, **{d.value: d for d in DType}}


class MalformedText(ValueError):
    """Text that is not a printed graph."""


@dataclass
class _Frame:
    """One open parenthesis: the finished items, and the sum being parsed."""

    items: list[Attr] = field(default_factory=list)
    total: Size | None = None
    product: Size | None = None
    negative: bool = False
    times: bool = False
    other: Attr | None = None  # an item that is not a size

    def factor(self, size: Size) -> None:
        if self.times is (self.product is None):
            raise MalformedText("sizes are joined by `*`, `+` or `-`")
        self.times = False
        self.product = size if self.product is None else self.product * size

    def end_term(self) -> None:
        if self.times:
            raise MalformedText("nothing after `*`")
        if self.product is not None:
            term = -self.product if self.negative else self.product
            self.total = term if self.total is None else self.total + term
        elif self.negative:
            raise MalformedText("a sign without a number")
        self.product, self.negative = None, False

    def end_item(self, may_be_empty: bool = False) -> None:
        self.end_term()
        if self.total is not None and self.other is not None:
            raise MalformedText("a size next to something else")
        item = self.other if self.other is not None else self.total
        if item is not None:
            self.items.append(item)
        elif not may_be_empty:
            raise MalformedText("a value is missing")
        self.total = self.other = None


class AttrReader:
    """Parses attributes; ``dims`` are the dims that sizes may name. Equal texts are parsed once."""

    def __init__(self) -> None:
        self.dims: dict[str, Dim] = {}
        self._known: dict[str, Mapping[str, Attr]] = {"": NO_ATTRS}

    def attrs(self, text: str) -> Mapping[str, Attr]:
        """``k=3, pad=(1, 1)``."""
        if text not in self._known:
            found: dict[str, Attr] = {}
            at = 0
            while at < len(text):
                match = re.compile(r"(\w+)=").match(text, at)
                if match is None:
                    raise MalformedText(f"no attribute at {text[at : at + 20]!r}")
                value, at = self._read(text, match.end())
                found[match[1]] = value
                if at < len(text):
                    if not text.startswith(", ", at):
                        raise MalformedText(f"`, ` expected at {text[at : at + 20]!r}")
                    at += 2
            self._known[text] = MappingProxyType(found)
        return self._known[text]

    def value(self, text: str) -> Attr:
        """One attribute."""
        value, at = self._read(text, 0)
        if text[at:].strip():
            raise MalformedText(f"more than one value in {text!r}")
        return value

    def _read(self, text: str, at: int) -> tuple[Attr, int]:
        """The value from ``at`` to the end or to a comma outside parentheses, and its end."""
        frames = [_Frame()]
        closed: tuple[_Frame, bool] | None = None  # the frame closed last, and whether a comma preceded its end
        comma = False
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise MalformedText(f"unexpected {text[at : at + 20]!r}")
            token = match[match.lastgroup or 0]
            frame = frames[-1]
            if closed is not None:
                inner, was_tuple = closed
                closed = None
                _close(frame, inner, was_tuple)
            if token == "," and len(frames) == 1:
                break
            at = match.end()
            if match.lastgroup == "sign" and token == ")":
                if len(frames) == 1:
                    raise MalformedText("a parenthesis too many")
                frame.end_item(may_be_empty=comma or not frame.items)
                closed = (frames.pop(), comma)
                comma = False
                continue
            comma = False
            match token:
                case "(":
                    frames.append(_Frame())
                case ",":
                    frame.end_item()
                    comma = True
                case "+" | "-":
                    frame.end_term()
                    frame.negative = token == "-"
                case "*":
                    frame.times = True
                case "//":
                    at = _divide(frame, text, at)
                case _:
                    self._item(frame, match)
        if closed is not None:
            _close(frames[-1], *closed)
        if len(frames) != 1:
            raise MalformedText("a parenthesis is not closed")
        frames[0].end_item()
        if len(frames[0].items) != 1:
            raise MalformedText("one value expected")
        return frames[0].items[0], at

    def _item(self, frame: _Frame, match: re.Match[str]) -> None:
        token = match[match.lastgroup or 0]
        if match.lastgroup == "int":
            frame.factor(int(token))
        elif match.lastgroup == "name" and token in self.dims:
            frame.factor(of_dim(self.dims[token]))
        elif frame.other is not None:
            raise MalformedText(f"`{token}` after a value")
        elif match.lastgroup == "string":
            frame.other = str(json.loads(token))
        elif match.lastgroup == "float":
            frame.other = float(token)
        elif match.lastgroup == "name" and token in _WORDS:
            frame.other = _WORDS[token]
        else:
            raise MalformedText(f"unexpected `{token}`")


def _close(frame: _Frame, inner: _Frame, was_tuple: bool) -> None:
    """Takes what was in parentheses: a size without a comma is a factor, anything else a tuple."""
    [item, *others] = inner.items or [()]
    if not was_tuple and not others and isinstance(item, int | Poly) and not isinstance(item, bool):
        frame.factor(item)
    else:
        frame.other = tuple(inner.items)


def _divide(frame: _Frame, text: str, at: int) -> int:
    """Divides the product so far by the integer at this place; returns its end."""
    divisor = re.compile(r"\d+").match(text, at)
    signed = frame.negative and frame.total is None
    if frame.product is None or frame.times or signed or divisor is None or not int(divisor[0]):
        raise MalformedText("`//` needs a size and an integer")
    frame.product = floor_div(frame.product, int(divisor[0]))
    return divisor.end()
