"""The values of a sweep's trials: a grid, or random draws that are the same on every machine.

A draw is a function of the seed, the number of the draw and the key: SHA-256 gives the random bits, ``decimal``, which
rounds correctly everywhere, the logarithms. Numbers are rounded to six significant digits, so they can be read and
typed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Final, TypeAlias

from dslc.runtime.config.readers import refuse
from dslc.runtime.config.sections.sweep import MOST_TRIALS
from dslc.runtime.config.space import Axis, Space
from dslc.runtime.config.yaml import Value, plain

#: One trial: a value for each key of the space.
Values: TypeAlias = Mapping[str, Value]

_BITS: Final = 64
_EXACT: Final = Context(prec=40)
_DIGITS: Final = 6
_MOST_IN_A_ROW: Final = 1000  # draws that are known already, before a space counts as exhausted


def grid(space: Space) -> list[Values]:
    """All combinations; the values of the last key change first. DataError R104 for a range without an end."""
    total = math.prod(_count(axis) for axis in space.axes)
    if total > MOST_TRIALS:
        assert space.written is not None
        help = f"list fewer values, or write `method: random`; at most {MOST_TRIALS} trials"
        refuse(space.written, f"the grid has {total} combinations", help)
    return [dict(zip((axis.key for axis in space.axes), row)) for row in product(*map(_listed, space.axes))]


def _count(axis: Axis) -> int:
    if axis.choices:
        return len(axis.choices)
    if axis.kind != "int":
        help = "list its values, or write `method: random`"
        refuse(axis.written, f"a grid cannot try every value of `{axis.key}`", help)
    return int(axis.high) - int(axis.low) + 1


def _listed(axis: Axis) -> tuple[Value, ...]:
    return axis.choices or tuple(axis.of(number) for number in range(int(axis.low), int(axis.high) + 1))


def drawn(space: Space, seed: int, count: int) -> list[Values]:
    """``count`` random trials that differ from each other; fewer if the space has no more. A longer list begins with
    the shorter one."""
    found: list[Values] = []
    known: set[str] = set()
    number = missed = 0
    while len(found) < count and missed < _MOST_IN_A_ROW:
        trial = {axis.key: draw(axis, _word(seed, number, axis.key)) for axis in space.axes}
        number += 1
        said = repr([(key, plain(value)) for key, value in sorted(trial.items())])
        missed = missed + 1 if said in known else 0
        if not missed:
            known.add(said)
            found.append(trial)
    return found


def _word(seed: int, number: int, key: str) -> int:
    """64 random bits."""
    digest = hashlib.sha256(f"drawn {seed} {number} {key}".encode()).digest()
    return int.from_bytes(digest[: _BITS // 8], "big")


def draw(axis: Axis, word: int) -> Value:
    """A value of one key by 64 random bits."""
    if axis.choices:
        return axis.choices[word * len(axis.choices) >> _BITS]
    if axis.kind == "int":
        low, high = int(axis.low), int(axis.high)
        return axis.of(low + (word * (high - low + 1) >> _BITS))
    low_, high_ = Decimal(axis.low), Decimal(axis.high)
    part = _decimal(Fraction(word, 1 << _BITS))
    if axis.kind == "log_uniform":
        low_, high_ = _EXACT.ln(low_), _EXACT.ln(high_)
    found = _EXACT.add(low_, _EXACT.multiply(part, _EXACT.subtract(high_, low_)))
    if axis.kind == "log_uniform":
        found = _EXACT.exp(found)
    return axis.of(rounded(float(found), axis))


def rounded(found: float, axis: Axis) -> float:
    """A number of a range with six significant digits, within the range."""
    return min(max(float(f"{found:.{_DIGITS}g}"), axis.low), axis.high)


def _decimal(part: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(part.numerator), Decimal(part.denominator))
