"""Checks the characters of a source: only visible text, without characters that hide or reverse text."""

from __future__ import annotations

import re
import unicodedata

from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.limits import MAX_SHOWN
from dslc.dsl.span import Source, Span

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_QUOTES = frozenset("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2018\u2019\u201a\u201b\u2032\u2033")
_ASCII = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u00d7\u00b7\u2217\u22c5", "*"),
    **{"\u00f7": "/", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2192": "->", "\u2026": "..."},
}
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, invisible formats, surrogates, line and paragraph separators


def check_characters(source: Source) -> None:
    """Raise a CompileError (E0003) naming each forbidden character: NUL and other controls, a carriage return alone,
    and invisible or direction-changing characters, also in comments and texts. A byte order mark is allowed at the
    start."""
    text = source.text
    places = [match.start() for match in _CONTROL.finditer(text)]
    if not text.isascii():
        places += [
            i
            for i, char in enumerate(text)
            if char > "\x7f" and unicodedata.category(char) in _HIDDEN and not (i == 0 and char == "\ufeff")
        ]
    if places:
        raise CompileError([_diagnostic(source, place) for place in sorted(places)[: MAX_SHOWN + 1]])


def _diagnostic(source: Source, place: int) -> Diagnostic:
    char = source.text[place]
    span = Span(source, place, place + 1)
    if char == "\r":
        title, help = "a carriage return without a newline", "save the file with line ends LF or CR LF"
    elif char == "\x00":
        title, help = "a NUL character", "this is not a text file, or it is damaged: save it as UTF-8"
    else:
        name = unicodedata.name(char, "a control character").lower()
        title, help = f"U+{ord(char):04X} ({name}) is invisible and not allowed", "delete it"
    return Diagnostic("E0003", title, Label(span, ""), help=help)


def look_alike(char: str) -> str | None:
    """The help for a character that word processors and other keyboards put in the place of one of ASCII: quotes,
    dashes, wide forms, spaces. None for a letter of another alphabet."""
    if char in _QUOTES:
        return 'write `"`'
    if unicodedata.category(char) == "Zs":
        return "write a plain space"
    plain = _ASCII.get(char) or unicodedata.normalize("NFKC", char)
    return f"write `{plain}`" if plain.isascii() else None
