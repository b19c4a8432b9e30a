"""Words and forms of other languages, and what to write here instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dslc.dsl.diagnostics import Diagnostic
from dslc.dsl.syntax_errors.place import Place

_BLOCK: Final = "write `block name(x: [B, D]) -> [B, D] { ... }`"
_CHECK: Final = 'write `check condition, "text"`'
_USE: Final = 'write `use blocks.resnet (cbr)` or `use "blocks/resnet.nn"`; the built-in functions need no import'

#: At the start of a statement or declaration.
_FIRST: Final = {
    **dict.fromkeys(("def", "fn", "func", "function"), _BLOCK),
    "class": "write `model Name(x: [B, D]) -> [B, classes] { ... }`",
    **dict.fromkeys(("import", "from"), _USE),
    "while": "loops have a fixed count: `for i in 0..n { ... }`",
    "elif": "write `else if`",
    **dict.fromkeys(("let", "var"), "write `name = value`"),
    **dict.fromkeys(("assert", "raise"), _CHECK),
    "input": "inputs belong in the model's parentheses: `model Name(x: [B, D]) -> [B, 10] { ... }`",
    "end": "a body ends with `}`",
    "pass": "an empty body is `{ }`",
    "with": "options are attributes, such as `@precision(f32)`",
    "print": "a model cannot print; `dslc show` prints its graph",
}

#: Within a value, before another word.
_INSIDE: Final = {
    "lambda": f"a function is a block: {_BLOCK}",
    "new": "call it by its name: `f(x)`",
    "await": "leave it out",
}

#: Types before a name, as in C.
_TYPES: Final = frozenset(("int", "float", "double", "bool", "str", "string", "auto", "Tensor", "tensor", "const"))


def _foreign_word_(p: Place) -> Diagnostic | None:
    help = _FIRST.get(p.start.text)
    if help is None or p.start.kind != "NAME" or (p.unit != "item" and p.index > p.first + 2):
        return None
    return p.error(f"`{p.start.text}` is not a keyword", "", help, at=p.first)


def _behind_a_body_(p: Place) -> Diagnostic | None:
    """`if a { } elif b { }`"""
    if p.token.text != "elif" or p.before is None or p.before.kind != "}":
        return None
    return p.error(f"`{p.token.text}` is not a keyword", "", _FIRST["elif"])


def _inside_(p: Place) -> Diagnostic | None:
    """`f = lambda z: 2 * z`"""
    before = p.before
    if before is None or before.kind != "NAME" or before.text not in _INSIDE or p.token.kind not in ("NAME", ":"):
        return None
    return p.error(f"`{before.text}` is not a keyword", "", _INSIDE[before.text], at=p.index - 1)


def _typed_(p: Place) -> Diagnostic | None:
    """`int n = 3`"""
    if p.unit == "item" or p.index != p.first + 1 or p.start.text not in _TYPES or p.token.kind != "NAME":
        return None
    return p.error("a variable has no type", "", f"write `{p.token.text} = value`", at=p.first)


def _dictionary_(p: Place) -> Diagnostic | None:
    """`c = {"a": 1}`"""
    if p.token.kind != "{" or p.before is None or p.before.kind not in ("=", "(", "[", ",", "return"):
        return None
    if p.before.kind == "return":
        help = "return the values in the order of the results: `return logits, probs`"
        return p.error("there are no dictionaries", "", help)
    if p.unit == "entry" and p.start.kind == "NAME" and p.index == p.first + 2:
        return p.error("a section has no `=` before its braces", "", f"write `{p.start.text} {{ ... }}`")
    return p.error("there are no dictionaries", "", "write a list, as `[1, 2]`, or a variable for each value")


def _text_as_label_(p: Place) -> Diagnostic | None:
    """`linear(4) as "head"`, `for i in 0..3 as f"layer{i}"`"""
    before = p.tokens.items[max(p.index - 2, 0) : p.index]
    if p.token.kind != "STRING" or "as" not in [token.kind for token in before] or p.index == p.first:
        return None
    help = "a label is a name without quotes, as `linear(4) as head`; the label of a loop gets the index by itself"
    return p.error("a label is a name, not a text", "", help)


RULES: Final[tuple[Callable[[Place], Diagnostic | None], ...]] = (
    _foreign_word_,
    _behind_a_body_,
    _inside_,
    _typed_,
    _dictionary_,
    _text_as_label_,
)
