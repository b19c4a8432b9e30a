"""The heads of declarations and loops: what stands between the first word and the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dslc.dsl.diagnostics import Diagnostic
from dslc.dsl.syntax_errors.place import Place, describe, expected, listed

_MODEL: Final = "write `{} Name(x: [B, 8], n: int = 3) -> [B, 10] {{ ... }}`: each argument with its shape or type"

#: The whole form, by the first word.
FORMS: Final = {
    "for": "write `for i in 0..n { ... }`, or `for (a, b) in pairs { ... }`",
    "scan": "write `scan x in xs along 1 carry h into y { ... yield h }`",
    "dim": "write `dim B in 1..64 = 8`, or `dim T = 35` for a fixed size",
    "layer": "write `layer name = linear(8)`",
    "param": "write `param w: [8, 4] = normal(0.02)`: its shape, then its initial values",
    "state": "write `state h: [B, 8] = 0`: its shape, then its first values",
    "buffer": "write `buffer mean: [8] = 0`: its shape, then its first values",
    "block": _MODEL.format("block"),
    "model": _MODEL.format("model"),
}

#: What else the body of a model or block holds, which the train section lacks.
_ONLY_IN_BLOCKS: Final = ("layer", "param", "state", "buffer", "for", "scan", "if", "return", "yield", "check")


def _head_(p: Place) -> Diagnostic | None:
    form = FORMS.get(p.start.text) if p.start.kind in (*FORMS, "NAME") and p.unit != "entry" else None
    if form is None or p.index == p.first or _in_body(p) or _in_value(p):
        return None
    label = f"expected {listed(expected(p.accepted, ends=True))}"
    return p.error(f"{describe(p.token)} is not expected here", label, form)


def _in_body(p: Place) -> bool:
    return any(token.kind == "{" for token in p.tokens.items[p.first : p.index])


def _in_value(p: Place) -> bool:
    """Whether a value has begun: after `=` outside of brackets, or after `along`."""
    depth = 0
    for token in p.tokens.items[p.first : p.index]:
        depth += (token.kind in ("(", "[")) - (token.kind in (")", "]"))
        if depth == 0 and token.kind in ("=", "along"):
            return True
    return False


def _statement_of_a_block_(p: Place) -> Diagnostic | None:
    """`scan` in a train section."""
    if p.unit != "entry" or p.index != p.first or p.token.kind not in _ONLY_IN_BLOCKS:
        return None
    help = f"write a block with this `{p.token.text}`, and call it here: `y = f(output)`"
    return p.error(f"`{p.token.text}` stands in blocks and models, not in a section", "", help)


def _entry_without_value_(p: Place) -> Diagnostic | None:
    """`metrics { accuracy }`"""
    if p.unit != "entry" or p.index != p.first + 1 or p.start.kind != "NAME" or p.token.kind not in ("_NL", "}", ","):
        return None
    name = p.start.text
    return p.error("an entry has a name and a value", "no value", f"write `{name} = ...`", at=p.first)


def _edition_(p: Place) -> Diagnostic | None:
    """`nn 1` below other lines"""
    if p.unit != "item" or p.start.text != "nn" or p.index != p.first + 1 or p.token.kind != "NUMBER":
        return None
    return p.error("the edition stands on the first line", "", "move this line to the top of the file", at=p.first)


#: These come first: they know the unit that they stand in.
EARLY: Final[tuple[Callable[[Place], Diagnostic | None], ...]] = (
    _statement_of_a_block_,
    _entry_without_value_,
    _edition_,
)
#: This one comes last: any other mistake in a head.
LATE: Final[tuple[Callable[[Place], Diagnostic | None], ...]] = (_head_,)
