"""Mistakes in expressions and statements. Each rule examines the place and recognises one mistake, or gives None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dslc.dsl.diagnostics import Diagnostic, did_you_mean
from dslc.dsl.lexer import DECLARING_WORDS
from dslc.dsl.syntax_errors.heads import FORMS
from dslc.dsl.syntax_errors.place import (
    COMPARISONS,
    DECLARATIONS,
    ENDS,
    EXPRESSION,
    OPERATORS,
    STATEMENTS,
    Place,
    describe,
    expected,
    listed,
)

_BEFORE_VALUES: Final = ("=", ",", ":", "return", "yield", "check", "if", "else", "in")
_SHOWN: Final = 48  # characters of a value shown in a help


def _misspelt_word_(p: Place) -> Diagnostic | None:
    """`retrun x`, `modle Net(...)`: two names in a row; the first is similar to a word that could begin this unit."""
    words = {"item": (*DECLARATIONS, "dim"), "stmt": STATEMENTS}.get(p.unit, ())
    if p.index == p.first or p.start.kind != "NAME" or p.tokens.items[p.first + 1].kind not in ("NAME", "NUMBER"):
        return None
    near = did_you_mean(p.start.text, words)
    if near is None:
        return None
    return p.error(f"`{p.start.text}` is not a keyword", "", f"did you mean `{near}`?", at=p.first)


def _colon_(p: Place) -> Diagnostic | None:
    if p.token.kind != ":":
        return None
    following = p.tokens.items[p.index + 1].kind
    if p.start.kind == "for" and p.before is not None and p.before.kind == "NUMBER" and following in ("NUMBER", "NAME"):
        last = p.tokens.items[p.index + 1].text
        return p.error("a range is written with `..`", "", f"write `{p.before.text}..{last}`")
    if following == "_NL" or p.start.kind in ("for", "if", "scan", "block", "model", "else"):
        return p.error("a body is written in braces", "", "write `{` in place of `:`, and `}` after the body")
    if p.index != p.first + 1 or p.start.kind != "NAME":
        return None
    name = p.start.text
    if p.unit == "entry" and following == "{":
        return p.error("a section has no `:` before its braces", "", f"write `{name} {{ ... }}`")
    if p.unit == "entry":
        return p.error("an entry is written with `=`", "", f"write `{name} = value`")
    help = f"write `{name} = value`; a trained tensor is `param {name}: [D] = value`"
    return p.error("a variable has no type annotation", "", help)


def _compares_(p: Place) -> Diagnostic | None:
    """`loss == mse(output, t)`"""
    if p.token.kind != "==" or p.index != p.first + 1 or p.start.kind != "NAME" or p.unit == "item":
        return None
    return p.error("`==` compares, it does not assign", "", f"write `{p.start.text} = ...`")


def _equals_(p: Place) -> Diagnostic | None:
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


def _value_alone_(p: Place) -> Diagnostic | None:
    if p.unit != "stmt" or p.start.kind not in ("NAME", "NUMBER", "STRING", "(", "["):
        return None
    kind = p.token.kind
    head = [token.kind for token in p.tokens.items[p.first : p.index + 1]]
    if "=" in head or p.in_brackets:
        return None
    if kind == ".":
        return p.error("only a name or a part `a[i]` of a list can be assigned", "", _instead_of_field(p))
    if kind in ("(", "|>", *ENDS) or p.index == p.first or kind in OPERATORS:
        help = "give it a name, as `y = ...`, or `return` it"
        return p.error("a value alone is not a statement", "", help, at=p.first)
    return None


def _instead_of_field(p: Place) -> str:
    """The help for a statement that begins with ``self.fc`` or ``values.append``."""
    owner, field = p.start.text, p.tokens.items[p.index + 1].text
    if owner in ("self", "this"):
        return f"there are no objects: `layer {field} = linear(8)` declares a layer, `{field}(x)` calls it"
    if field in ("append", "extend", "insert"):
        return f"write `{owner} = {owner} + [x]`"
    return "assign to a plain name"


def _behind_a_pipe_(p: Place) -> Diagnostic | None:
    """`x |> f * y`: a pipe has the lowest precedence, so only another stage can follow it."""
    if p.token.kind not in (*OPERATORS, "@", "["):
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
        return _behind_a_label(p)
    pipe = " ".join(p.tokens.span(begin, p.index - 1).text.split())
    pipe = pipe if len(pipe) <= _SHOWN else f"{pipe[: _SHOWN // 2].rstrip()} ... {pipe[-_SHOWN // 2 :].lstrip()}"
    operator = "[...]" if p.token.kind == "[" else f" {p.token.text} ..."
    label = "binds more tightly than the pipe before it"
    return p.error(f"`{p.token.text}` cannot follow a stage of `|>`", label, f"add parentheses: `({pipe}){operator}`")


def _behind_a_label(p: Place) -> Diagnostic | None:
    """`f(x) as a + y`: a label ends the value that it names."""
    items = p.tokens.items
    if p.index < p.first + 3 or items[p.index - 2].kind != "as":
        return None
    name, sign = items[p.index - 1].text, p.token.text
    help = f"put the call and its label in parentheses: `(f(x) as {name}) {sign} ...`"
    return p.error(f"`{sign}` cannot follow a label", f"`as {name}` ends the value", help)


def _ends_early_(p: Place) -> Diagnostic | None:
    if p.token.kind not in ENDS or p.before is None:
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
    elif p.unit == "stmt":
        help = FORMS.get(p.start.kind)
    wanted = listed(expected(p.accepted, ends=False))
    return p.error(title, f"expected {wanted} after this", help, at=p.index - 1)


def _word_as_name_(p: Place) -> Diagnostic | None:
    word = p.token.kind
    if not word.isalpha() or not word.islower() or word in OPERATORS:
        return None
    following = p.tokens.items[p.index + 1].kind
    is_start = p.index == p.first
    if is_start and following not in ("=", ",", "["):
        return None
    if "NAME" not in p.accepted and not (p.before is not None and p.before.kind == word):
        return None
    help = f"choose another name, such as `{word}_1`"
    return p.error(f"`{word}` is a keyword and cannot be a name", "", help)


def _nothing_follows_(p: Place) -> Diagnostic | None:
    """`y = x +`, then a new statement: the line end after an operator does not count, so the parser read on."""
    items = p.tokens.items
    # In `y = x +` / `z = 3` it stops at the second `=`, one token after the line's first.
    index = p.index - 1 if p.token.kind == "=" else p.index
    if index <= p.first or not (p.token.kind == "=" or p.token.kind in (*STATEMENTS, *ENDS)):
        return None
    last, following = items[index - 1], items[index]
    if last.kind not in (*OPERATORS, "=", ",", "@", "|>"):
        return None
    if following.kind not in ENDS and "\n" not in p.tokens.source.text[last.end : following.start]:
        return None
    help = f"complete the expression after `{last.text}`, or remove it"
    return p.error(f"nothing follows this `{last.text}`", "", help, at=index - 1)


def _line_begins_(p: Place) -> Diagnostic | None:
    if p.index != p.first or p.token.kind not in OPERATORS:
        return None
    sign = p.token.text
    help = f"end the line above with `{sign}`, or put the whole expression in parentheses"
    if sign in ("//", "%"):
        help = f"a comment begins with `#`; to go on with `{sign}`, end the line above with it"
    return p.error(f"a line cannot begin with `{sign}`", "", help)


def _else_alone_(p: Place) -> Diagnostic | None:
    if p.token.kind != "else" or "else" in p.accepted:
        return None
    help = "write `if condition { ... } else { ... }`, or `a if condition else b`"
    return p.error("this `else` belongs to no `if`", "", help)


def _wrong_level_(p: Place) -> Diagnostic | None:
    kind = p.token.kind
    if p.index != p.first:
        return None
    if p.unit == "item" and kind in STATEMENTS:
        help = "move it into a `block` or `model`"
        return p.error(f"`{kind}` is not allowed at the top level of a file", "", help)
    if p.unit == "stmt" and kind in DECLARATIONS:
        help = "move it to the top of the file" + (", or write `name = value`" if kind == "const" else "")
        return p.error(f"`{kind}` is not allowed inside a body", "", help)
    return None


def _missing_comma_(p: Place) -> Diagnostic | None:
    if "," not in p.accepted or not p.in_brackets or p.before is None or p.token.kind not in EXPRESSION:
        return None
    if p.start.kind == "for" and p.tokens.items[p.first + 1].kind == "(":  # `for (int i = 0; ...)`
        return None
    help = f"write `{p.before.text}, {p.token.text}`"
    return p.error(f"a `,` is missing before {describe(p.token)}", "", help)


def _attribute_(p: Place) -> Diagnostic | None:
    """`y = @freeze linear(x, 4)`"""
    name = p.tokens.items[p.index + 1] if p.token.kind == "@" else None
    if name is None or name.kind != "NAME" or p.before is None or p.before.kind not in (*_BEFORE_VALUES, "(", "["):
        return None
    help = f"write `@{name.text}` before the whole statement, or `x |> @{name.text} f(a)`"
    return p.error("an attribute stands before a statement or a stage of a pipe", "", help)


def _second_statement_(p: Place) -> Diagnostic | None:
    kind = p.token.kind
    starts = kind in ("NAME", "@", *STATEMENTS, *DECLARATIONS)
    if "_NL" not in p.accepted or not starts or p.before is None:
        return None
    if p.before.kind == "NUMBER":
        return p.error(f"`{p.token.text}` is not a unit", "", "put an operator between them, or begin a new line")
    title = "the line continues after the end of a statement"
    if p.token.kind == "NAME" and p.tokens.items[p.index + 1].kind == "(" and p.before.kind in ("NAME", ")", "]"):
        name = p.token.text
        help = f"to call `{name}` with what is before it, write `|> {name}(...)`; a statement begins on a new line"
        return p.error(title, "", help)
    return p.error(title, "", "begin a new line here, or write `;`")


def _chained_comparison_(p: Place) -> Diagnostic | None:
    if p.token.kind not in COMPARISONS or "and" not in p.accepted:
        return None
    return p.error("comparisons do not chain", "", "write `a < b and b < c`")


def _sign_or_dot_(p: Place) -> Diagnostic | None:
    if "NUMBER" not in p.accepted:
        return None
    if p.token.kind == "+":
        return p.error("there is no unary `+`", "", "remove the `+`")
    if p.token.kind == ".":
        digits = p.tokens.items[p.index + 1]
        wanted = f"0.{digits.text}" if digits.kind == "NUMBER" else "0.5"
        return p.error("a number does not begin with `.`", "", f"write `{wanted}`")
    return None


def _ellipsis_(p: Place) -> Diagnostic | None:
    """``x: [..., C]``"""
    if p.token.kind != "...":
        return None
    what = "`...` stands only in an index, as `x[..., 0]`, and in the signature of a block"
    return p.error(what, "", "in a list, write each axis: `[B, T, C]`")


#: In this order: the first rule that recognises its mistake gives the message.
RULES: Final[tuple[Callable[[Place], Diagnostic | None], ...]] = (
    _misspelt_word_,
    _colon_,
    _nothing_follows_,
    _compares_,
    _equals_,
    _line_begins_,
    _else_alone_,
    _wrong_level_,
    _value_alone_,
    _behind_a_pipe_,
    _ends_early_,
    _word_as_name_,
    _attribute_,
    _missing_comma_,
    _ellipsis_,
    _sign_or_dot_,
    _chained_comparison_,
    _second_statement_,
)
