"""How similar two names of tensors are: equal words, words for the same, and words that went together elsewhere."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
#: Words that frameworks use for the same.
_SAME: Final = (
    {"batchnorm", "bn"}, {"ln", "layernorm"}, {"q", "query"}, {"k", "key"}, {"v", "value"}, {"emb", "embeddings"},
    {"fc", "linear", "dense"}, {"head", "classifier"}, {"attn", "attention"}, {"proj", "out", "projection"},
    {"tok", "token", "word", "wte"}, {"pos", "position", "wpe"}, {"downsample", "proj", "shortcut"},
)  # fmt: skip


class Similarity:
    """``known``: pairs of names that are assigned already; words that are in one name only teach which go together."""

    def __init__(self, known: Iterable[tuple[str, str]]) -> None:
        self._together: Counter[tuple[str, str]] = Counter()
        for theirs, ours in known:
            a, b = _words(theirs), _words(ours)
            self._together.update((x, y) for x in a - b for y in b - a)
        self._most: dict[tuple[int, str], list[int]] = defaultdict(list)  # the greatest counts of a word
        for (x, y), count in self._together.items():
            self._most[0, x].append(count)
            self._most[1, y].append(count)
        for counts in self._most.values():
            counts[:] = sorted(counts, reverse=True)[:2]

    def scores(self, theirs: list[str], ours: list[str]) -> list[list[float]]:
        """One row for each of ``theirs``. Words that all names of a side have do not count. Numbers count as words only
        if both sides have the same ones: `1` of 0 and 1 is not that of 1 and 2."""
        sides = [[_words(name) for name in names] for names in (theirs, ours)]
        used = [{word for words in side for word in words if word.isdecimal()} for side in sides]
        comparable = used[0] == used[1]
        for side in sides:
            common = set.intersection(*side) if len(side) > 1 else set()
            for words in side:
                words -= common
        return [[self._score(a, b, comparable=comparable) for b in sides[1]] for a in sides[0]]

    def _score(self, a: set[str], b: set[str], *, comparable: bool) -> float:
        score = 0.0
        for x in a:
            score += max((self._alike(x, y, comparable=comparable) for y in b), default=0.0)
        return round(score / max(len(a), len(b), 1), 6)

    def _alike(self, x: str, y: str, *, comparable: bool) -> float:
        if x.isdecimal() and y.isdecimal():
            return 1.0 if x == y and comparable else 0.0
        if x == y or any(x in words and y in words for words in _SAME):
            return 1.0
        # `1` goes with `a` if it does so more often than either of them goes with another word.
        count = self._together[x, y]
        rivals = [self._rival(key, count) for key in ((0, x), (1, y))] if count else [0]
        return 0.9 if count > max(rivals) else 0.5 if count and count == max(rivals) else 0.0

    def _rival(self, key: tuple[int, str], count: int) -> int:
        """The greatest count of a word without one that has this count."""
        most = self._most[key]
        return most[0] if most[0] != count else most[1] if len(most) > 1 else 0


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)} - {"weight", "bias", "gamma", "beta"}
