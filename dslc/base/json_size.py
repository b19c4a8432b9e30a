"""How much a JSON text holds, found before anything is made of it: a parser's memory and time follow from that."""

from __future__ import annotations

from typing import Final

_BRACKETS: Final = bytes.maketrans(b"[]{}", b"()()")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def too_large(raw: bytes, *, values: int, depth: int) -> str | None:
    """The limit that a text breaks, in words; None where it keeps both. A text in it counts as two values.

    Right for JSON; of anything else, right up to the place where a parser stops.
    """
    texts = raw.count(b'"') // 2
    if texts >= values // 2:  # before the next line, which takes memory for each of them
        return f"more than {values // 2} texts"
    marks = _without_texts(raw)
    if texts + _marked(marks) >= values:
        return f"more than {values} values"
    nesting = marks.translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(depth):
        nesting = nesting.replace(b"()", b"")
    return f"nesting is deeper than {depth}, or brackets do not match" if nesting else None


def count_values(raw: bytes) -> int:
    """How many values a text holds, in the measure of ``too_large``."""
    return raw.count(b'"') // 2 + _marked(_without_texts(raw)) + 1


def _marked(marks: bytes) -> int:
    return marks.count(b",") + marks.count(b"[") + marks.count(b"{")


def _without_texts(raw: bytes) -> bytes:
    """A JSON text without what stands between quotes, and the quotes."""
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # left to right, as escapes are read
    return b"".join(plain.split(b'"')[::2])
