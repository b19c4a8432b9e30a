"""Explains parse errors: common mistakes by name, all others by the tokens that would be accepted.

Each ``_..._`` function examines the place and recognises one mistake; the first match gives the message. No internal
name of the grammar (terminals, rules) reaches the user. ``words`` holds what comes from other languages, ``rules`` the
mistakes in expressions and statements, ``heads`` those before a body.
"""

from __future__ import annotations

from typing import Final

from dslc.dsl.diagnostics import Diagnostic
from dslc.dsl.syntax_errors import heads, rules, words
from dslc.dsl.syntax_errors.place import Place, describe, expected, listed
from dslc.dsl.tokens import Tokens

_RULES: Final = (*words.RULES, *heads.EARLY, *rules.RULES, *heads.LATE)


def explain(tokens: Tokens, accepted: frozenset[str], first: int, index: int, unit: str) -> Diagnostic:
    """Explains why the parser, which would accept these terminals, cannot accept the token at ``index``."""
    place = Place(tokens, first, index, unit, accepted)
    for rule in _RULES:
        diagnostic = rule(place)
        if diagnostic is not None:
            return diagnostic
    return _anything_else(place)


def _anything_else(p: Place) -> Diagnostic:
    if p.index == p.first:
        wanted = {
            "item": "a declaration: `block`, `model`, `const`, `dim`, `use`, or a section such as `train`",
            "stmt": "a statement",
            "entry": "an entry, as `loss = value`",
        }[p.unit]
    else:
        wanted = listed(expected(p.accepted, ends=True))
    return p.error(f"{describe(p.token)} is not expected here", f"expected {wanted}", None)
