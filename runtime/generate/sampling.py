"""Draws a token from logits: temperature, the k most likely, the nucleus; all in f64 and the same on every machine.

The number of a draw is the first 64-bit output of Philox4x64-10 with the key (seed, row) and the counter
(0, 0, position, 3), where ``row`` is the prompt's index in the call and ``position`` that of the token in the text. So
a draw depends neither on the other prompts nor on earlier draws. The counter's last word keeps these draws apart from
those of augmentation (1, 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import InputError, NumericError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GENERATION: Final = 3


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw: from ``softmax(logits / temperature)``, where 0 is the most likely token; from the ``top_k`` most
    likely ones only; from the fewest most likely ones that together have the probability ``top_p``, after that."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def check(self) -> None:
        """Raises InputError R105 for a number out of range."""
        whole = self.top_k is None or (_is_int(self.top_k) and self.top_k >= 1)
        for name, good, expected in (
            ("temperature", _is_number(self.temperature) and self.temperature >= 0, "a finite number of at least 0"),
            ("top_k", whole, "an int of at least 1, or None"),
            ("top_p", self.top_p is None or (_is_number(self.top_p) and 0 < self.top_p <= 1),
             "a number above 0 and at most 1, or None"),
            ("seed", _is_int(self.seed) and 0 <= self.seed < 1 << 64, "an int from 0 to 2^64 - 1"),
        ):  # fmt: skip
            if not good:
                raise InputError("R105", f"`{name}` is {repr(getattr(self, name))[:60]}",
                                 place=f"generate({name}=...)", help=f"it is {expected}")  # fmt: skip

    def draw(self, logits: NDArray[Any], row: int, position: int) -> int:
        """A token for the logits [V]. Of equal logits the lower token comes first. NumericError R501 if one is nan or
        inf, or all are -inf.

        Without ``top_k`` and ``top_p`` the probabilities are added up in the order of tokens, which sorts nothing; else
        the most likely one comes first."""
        _require_finite(logits)
        if self.temperature == 0:
            return int(np.argmax(logits))
        if self.top_k is None and self.top_p is None:
            tokens, chances = None, self._chances(np.asarray(logits, np.float64))
        else:
            tokens, chances = self.distribution(logits)
        ends = np.cumsum(chances)
        at = int(np.searchsorted(ends, unit(self.seed, row, position) * ends[-1], side="right"))
        at = min(at, int(np.searchsorted(ends, ends[-1])))  # the last one with a probability above 0
        return at if tokens is None else int(tokens[at])

    def _chances(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers in the ratio of the probabilities; the largest is 1, so nothing overflows."""
        scaled = logits - logits.max()
        scaled /= self.temperature
        found: NDArray[np.float64] = np.exp(scaled, out=scaled)
        return found

    def distribution(self, logits: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The tokens that may be drawn, the most likely first, and their probabilities, all above 0."""
        _require_finite(logits)
        wide = np.asarray(logits, np.float64)
        order = _most_likely(wide, len(wide) if self.temperature and self.top_k is None else self.top_k or 1)
        if self.temperature == 0:
            return order[:1], np.ones(1)
        chances = self._chances(wide[order])
        chances /= chances.sum()
        if self.top_p is not None:
            count = int(np.searchsorted(np.cumsum(chances), self.top_p)) + 1
            order, chances = order[:count], chances[:count] / chances[:count].sum()
        kept = chances > 0
        return order[kept], chances[kept]


def _most_likely(logits: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The tokens of the ``count`` greatest logits, the greatest first, of equal ones the lower token first. None is
    nan."""
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    least = np.partition(logits, len(logits) - count)[len(logits) - count]
    found = np.flatnonzero(logits >= least)  # more than wanted if several are equal to the least
    return found[np.argsort(-logits[found], kind="stable")[:count]]


def unit(seed: int, row: int, position: int) -> float:
    """The number of a draw: a multiple of 2^-53 in [0, 1)."""
    key, counter = np.array([seed, row], np.uint64), np.array([0, 0, position, _GENERATION], np.uint64)
    return float(int(np.random.Philox(key=key, counter=counter).random_raw()) >> 11) * 2.0**-53


def _require_finite(logits: NDArray[Any]) -> None:
    highest = logits.max()
    if not np.isfinite(highest):  # nan if one is nan
        raise NumericError(
            "R501",
            f"the largest logit is {float(highest):g}",
            place="generate",
            help="check the weights; a model with a cache gives nan after its last position: generate fewer tokens",
        )


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
