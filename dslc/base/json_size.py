"""Limits of JSON texts. The number of values is counted before a text is parsed, because it bounds the parser's memory
and time."""

from __future__ import annotations

import json
from typing import Any, Final

_BRACKETS: Final = bytes.maketrans(b"[]{}", b"()()")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def too_large(raw: bytes, *, values: int, depth: int) -> str | None:
    """The limit that the JSON text exceeds, in words; None if it keeps both. A string counts as two values.

    Exact for valid JSON; for other text, exact up to the point at which a parser stops.
    """
    texts = raw.count(b'"') // 2
    if texts >= values // 2:  # checked before the next line, which allocates memory per string
        return f"more than {values // 2} texts"
    marks = _without_texts(raw)
    if texts + _marked(marks) >= values:
        return f"more than {values} values"
    nesting = marks.translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(depth):
        nesting = nesting.replace(b"()", b"")
    return f"nesting is deeper than {depth}, or brackets do not match" if nesting else None


def parsed(text: str, longest: int) -> Any:
    """The value of a JSON text of at most ``longest`` characters. ValueError for any other text."""
    if len(text) > longest:
        raise ValueError("it is too long")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def count_values(raw: bytes) -> int:
    """The number of values in a JSON text, counted as in ``too_large``."""
    return raw.count(b'"') // 2 + _marked(_without_texts(raw)) + 1


def _marked(marks: bytes) -> int:
    return marks.count(b",") + marks.count(b"[") + marks.count(b"{")


def _without_texts(raw: bytes) -> bytes:
    """The JSON text without its strings and their quotes."""
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # left to right, the order in which escapes are read
    return b"".join(plain.split(b'"')[::2])
