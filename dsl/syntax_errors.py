"""Explains parse errors: common mistakes by name, all others by the tokens that would be accepted.

Each ``_..._`` function examines the place and recognises one mistake; the first match gives the message. No internal
name of the grammar (terminals, rules) reaches the user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dslc.dsl.diagnostics import Diagnostic, Label, did_you_mean
from dslc.dsl.lexer import DECLARING_WORDS
from dslc.dsl.tokens import Token, Tokens

_ENDS: Final = ("_NL", "$END", "}")
_COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
_OPERATORS: Final = ("+", "-", "*", "/", "//", "%", "^", *_COMPARISONS, "and", "or", "..")
_BEFORE_VALUES: Final = ("=", ",", ":", "return", "yield", "check", "if", "else", "in")
_SHOWN: Final = 48  # characters of a value shown in a help
_EXPRESSION: Final = ("NAME", "NUMBER", "STRING", "(", "[", "true", "false", "-", "not")
_DECLARATIONS: Final = ("use", "const", "block", "model")
_STATEMENTS: Final = ("layer", "param", "state", "buffer", "for", "scan", "if", "return", "yield", "check")

_FOREIGN_WORDS: Final = {
    "def": "write `block name(x: [B, D]) -> [B, D] { ... }`",
    "fn": "write `block name(x: [B, D]) -> [B, D] { ... }`",
    "func": "write `block name(x: [B, D]) -> [B, D] { ... }`",
    "function": "write `block name(x: [B, D]) -> [B, D] { ... }`",
    "class": "write `model Name(x: [B, D]) -> [B, classes] { ... }`",
    "import": 'write `use blocks.resnet (cbr)` or `use "blocks/resnet.nn"`',
    "from": 'write `use blocks.resnet (cbr)` or `use "blocks/resnet.nn"`',
    "while": "loops have a fixed count: `for i in 0..n { ... }`",
    "elif": "write `else if`",
    "let": "write `name = value`",
    "var": "write `name = value`",
    "assert": 'write `check condition, "text"`',
    "raise": 'write `check condition, "text"`',
    "input": "inputs belong in the model's parentheses: `model Name(x: [B, D]) -> [B, 10] { ... }`",
    "end": "a body ends with `}`",
    "pass": "an empty body is `{ }`",
    "with": "options are attributes, such as `@precision(f32)`",
    "print": "a model cannot print; `dslc show` prints its graph",
}


@dataclass(frozen=True, slots=True)
class _Place:
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


def explain(tokens: Tokens, accepted: frozenset[str], first: int, index: int, unit: str) -> Diagnostic:
    """Explains why the parser, which would accept these terminals, cannot accept the token at ``index``."""
    place = _Place(tokens, first, index, unit, accepted)
    for rule in _RULES:
        diagnostic = rule(place)
        if diagnostic is not None:
            return diagnostic
    return _anything_else(place)


def describe(token: Token) -> str:
    """A token in the user's words."""
    if token.kind == "_NL":
        return "`;`" if token.text == ";" else "the end of the line"
    if token.kind == "$END":
        return "the end of the file"
    if token.kind == "STRING":
        return "a text"
    return f"`{token.text or token.kind}`"


def _foreign_word_(p: _Place) -> Diagnostic | None:
    help = _FOREIGN_WORDS.get(p.start.text)
    if help is None or p.start.kind != "NAME" or (p.unit != "item" and p.index > p.first + 2):
        return None
    return p.error(f"`{p.start.text}` is not a keyword", "", help, at=p.first)


def _misspelt_word_(p: _Place) -> Diagnostic | None:
    """`retrun x`, `modle Net(...)`: two names in a row; the first is similar to a word that could begin this unit."""
    words = {"item": (*_DECLARATIONS, "dim"), "stmt": _STATEMENTS}.get(p.unit, ())
    if p.index == p.first or p.start.kind != "NAME" or p.tokens.items[p.first + 1].kind not in ("NAME", "NUMBER"):
        return None
    near = did_you_mean(p.start.text, words)
    if near is None:
        return None
    return p.error(f"`{p.start.text}` is not a keyword", "", f"did you mean `{near}`?", at=p.first)


def _colon_(p: _Place) -> Diagnostic | None:
    if p.token.kind != ":":
        return None
    following = p.tokens.items[p.index + 1].kind
    if following == "_NL" or p.start.kind in ("for", "if", "scan", "block", "model", "else"):
        return p.error("a body is written in braces", "", "write `{` in place of `:`, and `}` after the body")
    if p.index != p.first + 1:
        return None
    name = p.start.text
    if p.unit == "entry":
        return p.error("an entry is written with `=`", "", f"write `{name} = value`")
    help = f"write `{name} = value`; a trained tensor is `param {name}: [D] = value`"
    return p.error("a variable has no type annotation", "", help)


def _equals_(p: _Place) -> Diagnostic | None:
    if p.token.kind != "=":
        return None
    if p.unit == "item" and p.index == p.first + 1 and p.start.kind == "NAME":
        name = "x" if p.start.text in DECLARING_WORDS else p.start.text
        help = f"write `const {name} = value`, or move the statement into a block or model"
        return p.error("a statement is not allowed at the top level of a file", "", help)
    words = [token.kind for token in p.tokens.items[p.first : p.index]]
    if words[-2:] == [",", "NAME"] and "=" in words and not p.in_brackets and p.start.kind == "NAME":
        name = p.tokens.items[p.index - 1].text
        return p.error(
            "a comma separates no statements", "", f"write `; {name} = ...`, or a line of its own", at=p.index - 2
        )
    if p.start.kind in ("if", "check") or "=" in words or "if" in words:
        return p.error("`=` assigns, it does not compare", "", "write `==` to compare")
    return None


def _value_alone_(p: _Place) -> Diagnostic | None:
    if p.unit != "stmt" or p.start.kind not in ("NAME", "NUMBER", "STRING", "(", "["):
        return None
    kind = p.token.kind
    head = [token.kind for token in p.tokens.items[p.first : p.index + 1]]
    if "=" in head or p.in_brackets:
        return None
    if kind == ".":
        return p.error("only a name or a part `a[i]` of a list can be assigned", "", "assign to a plain name")
    if kind in ("(", "|>", *_ENDS) or p.index == p.first or kind in _OPERATORS:
        help = "give it a name, as `y = ...`, or `return` it"
        return p.error("a value alone is not a statement", "", help, at=p.first)
    return None


def _behind_a_pipe_(p: _Place) -> Diagnostic | None:
    """`x |> f * y`: a pipe has the lowest precedence, so only another stage can follow it."""
    if p.token.kind not in (*_OPERATORS, "@", "["):
        return None
    begin, depth, piped = p.index, 0, False
    while begin > p.first:
        kind = p.tokens.items[begin - 1].kind
        depth += (kind in (")", "]")) - (kind in ("(", "["))
        if depth < 0 or (depth == 0 and kind in _BEFORE_VALUES):
            break
        piped = piped or (depth == 0 and kind == "|>")
        begin -= 1
    if not piped:
        return None
    pipe = " ".join(p.tokens.span(begin, p.index - 1).text.split())
    pipe = pipe if len(pipe) <= _SHOWN else f"{pipe[: _SHOWN // 2].rstrip()} ... {pipe[-_SHOWN // 2 :].lstrip()}"
    operator = "[...]" if p.token.kind == "[" else f" {p.token.text} ..."
    label = "binds more tightly than the pipe before it"
    return p.error(f"`{p.token.text}` cannot follow a stage of `|>`", label, f"add parentheses: `({pipe}){operator}`")


def _ends_early_(p: _Place) -> Diagnostic | None:
    if p.token.kind not in _ENDS or p.before is None:
        return None
    if "else" in p.accepted and "if" in [t.kind for t in p.tokens.items[p.first : p.index]] and p.start.kind != "if":
        return p.error("a conditional needs an `else`", "", "write `a if condition else b`")
    what = {"item": "declaration", "stmt": "statement", "entry": "entry"}[p.unit]
    title = f"this {what} ends too early"
    help = None
    if "{" in p.accepted:
        help = "add its body in braces: `{ ... }`"
    elif p.before.kind == "return":
        help = "a block always returns a value: `return x`"
    wanted = _list(_expected(p.accepted, ends=False))
    return p.error(title, f"expected {wanted} after this", help, at=p.index - 1)


def _word_as_name_(p: _Place) -> Diagnostic | None:
    word = p.token.kind
    if not word.isalpha() or not word.islower() or word in _OPERATORS:
        return None
    following = p.tokens.items[p.index + 1].kind
    is_start = p.index == p.first
    if is_start and following not in ("=", ",", "["):
        return None
    if "NAME" not in p.accepted and not (p.before is not None and p.before.kind == word):
        return None
    help = f"choose another name, such as `{word}_1`"
    return p.error(f"`{word}` is a keyword and cannot be a name", "", help)


def _nothing_follows_(p: _Place) -> Diagnostic | None:
    """`y = x +`, then a new statement: the line end after an operator does not count, so the parser read on."""
    items = p.tokens.items
    # In `y = x +` / `z = 3` it stops at the second `=`, one token after the line's first.
    index = p.index - 1 if p.token.kind == "=" else p.index
    if index <= p.first or not (p.token.kind == "=" or p.token.kind in (*_STATEMENTS, *_ENDS)):
        return None
    last, following = items[index - 1], items[index]
    if last.kind not in (*_OPERATORS, "=", ",", "@", "|>"):
        return None
    if following.kind not in _ENDS and "\n" not in p.tokens.source.text[last.end : following.start]:
        return None
    help = f"complete the expression after `{last.text}`, or remove it"
    return p.error(f"nothing follows this `{last.text}`", "", help, at=index - 1)


def _line_begins_(p: _Place) -> Diagnostic | None:
    if p.index != p.first or p.token.kind not in _OPERATORS:
        return None
    sign = p.token.text
    help = f"end the line above with `{sign}`, or put the whole expression in parentheses"
    return p.error(f"a line cannot begin with `{sign}`", "", help)


def _else_alone_(p: _Place) -> Diagnostic | None:
    if p.token.kind != "else" or "else" in p.accepted:
        return None
    help = "write `if condition { ... } else { ... }`, or `a if condition else b`"
    return p.error("this `else` belongs to no `if`", "", help)


def _wrong_level_(p: _Place) -> Diagnostic | None:
    kind = p.token.kind
    if p.index != p.first:
        return None
    if p.unit == "item" and kind in _STATEMENTS:
        help = "move it into a `block` or `model`"
        return p.error(f"`{kind}` is not allowed at the top level of a file", "", help)
    if p.unit == "stmt" and kind in _DECLARATIONS:
        return p.error(f"`{kind}` is not allowed inside a body", "", "move it to the top of the file")
    return None


def _missing_comma_(p: _Place) -> Diagnostic | None:
    if "," not in p.accepted or not p.in_brackets or p.before is None or p.token.kind not in _EXPRESSION:
        return None
    help = f"write `{p.before.text}, {p.token.text}`"
    return p.error(f"a `,` is missing before {describe(p.token)}", "", help)


def _second_statement_(p: _Place) -> Diagnostic | None:
    kind = p.token.kind
    starts = kind in ("NAME", "@", *_STATEMENTS, *_DECLARATIONS)
    if "_NL" not in p.accepted or not starts or p.before is None:
        return None
    if p.before.kind == "NUMBER":
        return p.error(f"`{p.token.text}` is not a unit", "", "put an operator between them, or begin a new line")
    return p.error("the line continues after the end of a statement", "", "begin a new line here, or write `;`")


def _chained_comparison_(p: _Place) -> Diagnostic | None:
    if p.token.kind not in _COMPARISONS or "and" not in p.accepted:
        return None
    return p.error("comparisons do not chain", "", "write `a < b and b < c`")


def _sign_or_dot_(p: _Place) -> Diagnostic | None:
    if "NUMBER" not in p.accepted:
        return None
    if p.token.kind == "+":
        return p.error("there is no unary `+`", "", "remove the `+`")
    if p.token.kind == ".":
        digits = p.tokens.items[p.index + 1]
        wanted = f"0.{digits.text}" if digits.kind == "NUMBER" else "0.5"
        return p.error("a number does not begin with `.`", "", f"write `{wanted}`")
    return None


def _ellipsis_(p: _Place) -> Diagnostic | None:
    """``x: [..., C]``"""
    if p.token.kind != "...":
        return None
    what = "`...` stands only in an index, as `x[..., 0]`, and in the signature of a block"
    return p.error(what, "", "in a list, write each axis: `[B, T, C]`")


def _anything_else(p: _Place) -> Diagnostic:
    if p.index == p.first:
        wanted = {
            "item": "a declaration: `block`, `model`, `const`, `dim`, `use`, or a section such as `train`",
            "stmt": "a statement",
            "entry": "an entry, as `loss = value`",
        }[p.unit]
    else:
        wanted = _list(_expected(p.accepted, ends=True))
    return p.error(f"{describe(p.token)} is not expected here", f"expected {wanted}", None)


def _expected(accepted: frozenset[str], ends: bool) -> list[str]:
    """The accepted terminals in the user's terms, the most likely first."""
    rest = set(accepted)
    words: list[str] = []
    if {"NUMBER", "NAME", "("} <= rest:
        words.append("a value")
        rest -= set(_EXPRESSION)
    elif "NAME" in rest:
        words.append("a name")
    if {"+", "*"} <= rest:
        # An operator can follow almost everything, so the other terminals are more informative.
        others = rest - {*_OPERATORS, "@", "|>", "as", "if", "(", "[", ".", "UNIT"}
        rest = others or {"an operator"}
    if rest & set(_ENDS):
        if ends:
            words.append("the end of the statement")
        rest -= set(_ENDS)
    names = {"NUMBER": "a number", "STRING": "a string in quotes", "an operator": "an operator", "UNIT": "a unit"}
    words += [names.get(kind, f"`{kind}`") for kind in sorted(rest - {"NAME"}, key=lambda k: (k.isalpha(), k))]
    return words or ["more"]


def _list(words: list[str]) -> str:
    words = words[:5]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


_RULES: Final[tuple[Callable[[_Place], Diagnostic | None], ...]] = (
    _foreign_word_,
    _misspelt_word_,
    _colon_,
    _nothing_follows_,
    _equals_,
    _line_begins_,
    _else_alone_,
    _wrong_level_,
    _value_alone_,
    _behind_a_pipe_,
    _ends_early_,
    _word_as_name_,
    _missing_comma_,
    _ellipsis_,
    _sign_or_dot_,
    _chained_comparison_,
    _second_statement_,
)
