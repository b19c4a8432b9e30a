"""Canonical JSON: one text for one value, and a reader that rejects every other text.

Keys sorted, no spaces, ASCII, numbers as Python's ``repr`` writes them, every number finite, nesting at most 16 deep.
The reader parses the text, serialises the value again and compares. So any non-canonical text (a repeated key,
``1.0e0``, a space, 1e400) is found with its offset, without a parser of our own.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from dslc.base.errors import ArtifactError
from dslc.base.json_size import too_large

MAX_DEPTH: Final = 16
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STEP: Final = 4096  # bytes compared at once in the search for the first difference


def dumps(value: object) -> bytes:
    """The canonical text. ValueError for NaN, Inf, a non-string key or nesting over 16; TypeError for a non-JSON
    value."""
    _check_value(value)
    return _dump(value)


def _dump(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False)
    return text.encode("ascii")


def _check_value(value: object) -> None:
    """Rejects values that json.dumps would accept or convert silently."""
    stack: list[tuple[object, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict):
            for key in item:
                if type(key) is not str:
                    raise ValueError(f"a key that is not a string: {key!r}")
            inner = list(item.values())
        elif isinstance(item, list | tuple):
            inner = list(item)
        else:
            if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
                raise ValueError("canonical JSON cannot contain NaN or Inf")
            continue
        if depth >= MAX_DEPTH:
            raise ValueError(f"nesting is deeper than {MAX_DEPTH}")
        stack.extend((i, depth + 1) for i in inner)


def loads(data: bytes | bytearray | memoryview, *, place: str, offset: int = 0, max_values: int = 1_000_000) -> Any:
    """The value of a canonical text. Any other text raises ArtifactError R301 with ``place:offset`` and the broken
    rule.

    ``place`` names the source, ``offset`` is the start of ``data`` in it. ``max_values`` bounds the memory; a string
    counts twice. It is checked on ``data`` before any value is created.
    """
    raw = bytes(data)
    if not raw.isascii():
        at = next(i for i, byte in enumerate(raw) if byte > 127)
        raise _broken(place, offset + at, "this JSON must be ASCII")
    rule = too_large(raw, values=max_values, depth=MAX_DEPTH)
    if rule is not None:
        raise _broken(place, offset + (_deepest(raw) if rule.startswith("nesting") else 0), rule)
    try:
        # Constants (NaN, Infinity) become None, which serialises differently, so the comparison below finds them.
        with uncollected():
            value = json.loads(raw, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        raise _broken(place, offset + error.pos, f"not JSON: {error.msg}") from error
    except ValueError as error:  # Python's own limit on the digits of an int
        raise _broken(place, offset, "a number has too many digits") from error
    again = _dump(value)
    if again != raw:
        at = _first_difference(raw, again)
        raise _broken(
            place,
            offset + at,
            "not canonical JSON: sorted unique keys, no spaces, finite numbers in their shortest form",
        )
    return value


@contextmanager
def uncollected() -> Iterator[None]:
    """Disables the cycle collector inside: JSON data has no cycles, but growth would trigger repeated collections."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _deepest(raw: bytes) -> int:
    """Offset at which the nesting first exceeds the limit, else 0; examines only the first 100,000 brackets and
    strings."""
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(raw)):
        if count == 100_000:
            break
        if token.group() in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                return token.start()
        elif token.group() in (b"]", b"}"):
            depth -= 1
            if depth < 0:
                return token.start()
    return 0


def _first_difference(left: bytes, right: bytes) -> int:
    start = 0
    while left[start : start + _STEP] == right[start : start + _STEP] and start < len(left):
        start += _STEP
    a, b = left[start : start + _STEP], right[start : start + _STEP]
    return start + next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _broken(place: str, offset: int, rule: str) -> ArtifactError:
    return ArtifactError(
        "R301", rule, place=f"{place}:{offset}", help="build it again; it was changed after it was written"
    )
