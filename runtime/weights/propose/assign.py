"""Which tensor of a file is which of a model: by equal names, shapes, order of numbers, other blocks, and names.

Tensors of one kind and shape are candidates of each other. Numbered scopes (``layer1.0``, ``h.3``) that hold tensors of
the same kinds and shapes correspond in the order of their numbers, the largest ones first; so candidates are those
within corresponding scopes. If more than one is left, other blocks and similar names decide; else none is chosen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dslc.runtime.weights.names.ordered import natural
from dslc.runtime.weights.propose.items import Item, numbers, squeezed, without_ones
from dslc.runtime.weights.propose.similar import Similarity

#: How sure an assignment is, the surest first.
REASONS: Final = ("name", "shape", "numbers", "block", "similar")
_MOST_ROUNDS: Final = 100  # models need about ten
_MOST_ALIKE: Final = 64  # candidates of one shape in one scope that names are compared for


@dataclass(frozen=True)
class Pair:
    """``others``: names of the model that have the same shape, if names had to decide."""

    file: Item
    model: Item
    reason: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unclear:
    """Tensors of the file and of the model with one shape, of which no choice is better than another."""

    files: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True)
class Assignment:
    pairs: tuple[Pair, ...]
    unclear: tuple[Unclear, ...]


def assign(files: list[Item], models: list[Item]) -> Assignment:
    """Items in the order of ``items.natural``. Axes of size 1 count only for those that are assigned without them."""
    exact = _assign(files, models)
    used = [{p.file.name for p in exact.pairs}, {p.model.name for p in exact.pairs}]
    left = [{i.name: i for i in side if i.name not in names} for side, names in zip((files, models), used)]
    loose = _assign(*([squeezed(item) for item in side.values()] for side in left))
    found = []
    for pair in loose.pairs:
        file, model = left[0][pair.file.name], left[1][pair.model.name]
        change = file.change if file.shape == model.shape else without_ones(file.shape, model.shape)
        if file.shape == model.shape or not file.change:
            found.append(Pair(Item(file.name, file.kind, model.shape, change), model, pair.reason, pair.others))
    return Assignment((*exact.pairs, *found), loose.unclear)


def _assign(files: list[Item], models: list[Item]) -> Assignment:
    have = {item.name: item for item in files}
    same = {m.name: Pair(have[m.name], m, "name") for m in models if m.name in have and have[m.name].shape == m.shape}
    state = _State([f for f in files if f.name not in same], [m for m in models if m.name not in same])
    state.pairs = list(same.values())
    state.by_scopes()
    state.singles(last=False)
    for _ in range(_MOST_ROUNDS):
        if not (state.by_layers() or state.by_order() or state.by_blocks() or state.by_similarity()):
            break
        state.singles(last=True)
    return Assignment(tuple(state.pairs), state.unclear())


class _State:
    """Candidates by color: two items of one color have the same kind, shape, and corresponding scopes."""

    def __init__(self, files: list[Item], models: list[Item]) -> None:
        self.sides = (files, models)
        self.colors: tuple[dict[str, Hashable], ...] = tuple(
            {item.name: (item.kind, item.shape) for item in side} for side in self.sides
        )
        self.inner: tuple[dict[str, str], ...] = ({}, {})  # the innermost scope of each item that has a counterpart
        self.pairs: list[Pair] = []
        self.done: set[tuple[int, str]] = set()
        counts = [Counter(colors.values()) for colors in self.colors]
        self.unique = {color for color, count in counts[0].items() if count == 1 == counts[1][color]}

    def by_scopes(self) -> None:
        """Refine colors by scopes that correspond."""
        found = [_scopes(side) for side in self.sides]
        for size in sorted({len(names) for scopes in found for names in scopes.values()}, reverse=True):
            signed: list[dict[Hashable, list[str]]] = [defaultdict(list), defaultdict(list)]
            for side, scopes in enumerate(found):
                for scope, names in scopes.items():
                    if len(names) == size:
                        content = tuple(sorted(Counter(hash(self.colors[side][n]) for n in names).items()))
                        signed[side][content].append(scope)
            for said, theirs in signed[0].items():
                ours = signed[1].get(said, [])
                if len(theirs) != len(ours):
                    continue
                for number, both in enumerate(zip(sorted(theirs, key=natural), sorted(ours, key=natural))):
                    for side, scope in enumerate(both):
                        for name in found[side][scope]:
                            self.colors[side][name] = (self.colors[side][name], size, said, number)
                            self.inner[side][name] = scope

    def classes(self) -> Iterable[tuple[list[Item], list[Item]]]:
        """Items of one color that have no counterpart yet."""
        found: dict[Hashable, tuple[list[Item], list[Item]]] = {}
        for side, items in enumerate(self.sides):
            for item in items:
                if (side, item.name) not in self.done:
                    found.setdefault(self.colors[side][item.name], ([], []))[side].append(item)
        return [both for both in found.values() if both[0] and both[1]]

    def pair(self, file: Item, model: Item, reason: str, others: tuple[str, ...] = ()) -> None:
        self.pairs.append(Pair(file, model, reason, others))
        self.done |= {(0, file.name), (1, model.name)}

    def singles(self, *, last: bool) -> None:
        """Assign candidates that have one counterpart; ``last``: because names decided about the others."""
        for files, models in self.classes():
            if len(files) == len(models) == 1:
                unique = (files[0].kind, files[0].shape) in self.unique
                numbered = not last and files[0].name in self.inner[0]
                reason = "shape" if unique else "numbers" if numbered else "similar"
                self.pair(files[0], models[0], reason)

    def inside(self, side: int, item: Item) -> str:
        """The name without that of the innermost scope that has a counterpart."""
        scope = self.inner[side].get(item.name, "")
        return item.name[len(scope) + 1 :] if scope else item.name

    def by_layers(self) -> bool:
        """Assign what another tensor of the same layer, or else of the module around it, assigns."""
        return self._as_before(lambda side, item: item.module) or self._as_before(
            lambda side, item: item.module.rpartition(".")[0]
        )

    def by_order(self) -> bool:
        """Assign candidates whose names differ in numbers only, on both sides, in the order of these numbers."""
        before = len(self.pairs)
        for files, models in self.classes():
            alike = all(len({numbers(item.name)[0] for item in side}) == 1 for side in (files, models))
            if alike and len(files) == len(models):
                for file, model in zip(files, models):
                    self.pair(file, model, "numbers")
        return len(self.pairs) > before

    def by_blocks(self) -> bool:
        """Assign what blocks with the same names assign."""
        names: tuple[dict[str, set[str]], ...] = (defaultdict(set), defaultdict(set))
        for side, items in enumerate(self.sides):
            for item in items:
                names[side][self.inner[side].get(item.name, "")].add(self.inside(side, item))
        forms = tuple({scope: frozenset(found) for scope, found in side.items()} for side in names)

        return self._as_before(
            lambda side, item: (forms[side].get(self.inner[side].get(item.name, "")), self.inside(side, item))
        )

    def _as_before(self, key: Callable[[int, Item], Hashable]) -> bool:
        """Assign the only candidate whose key is that of the model's tensor in all pairs with the key of the file's.
        What follows from similar names is no surer than they are."""
        known: dict[Hashable, dict[Hashable, str]] = defaultdict(dict)
        for pair in self.pairs:
            both = known[key(0, pair.file)]
            ours = key(1, pair.model)
            both[ours] = "similar" if "similar" in (pair.reason, both.get(ours)) else "block"
        before = len(self.pairs)
        for files, models in self.classes():
            for file in files if len(files) <= _MOST_ALIKE else ():
                expected = known.get(key(0, file), {}) if key(0, file) != "" else {}
                found = [m for m in models if (1, m.name) not in self.done and key(1, m) in expected]
                if len(expected) == 1 == len(found) and "" not in expected:  # the outermost module is no sign
                    self.pair(file, found[0], expected[key(1, found[0])])
        return len(self.pairs) > before

    def by_similarity(self) -> bool:
        """Assign candidates whose names are more similar to each other than to all others."""
        similarity = Similarity((self.inside(0, p.file), self.inside(1, p.model)) for p in self.pairs)
        before = len(self.pairs)
        for files, models in self.classes():
            if max(len(files), len(models)) > _MOST_ALIKE:
                continue
            scores = similarity.scores([self.inside(0, f) for f in files], [self.inside(1, m) for m in models])
            for i, j in _mutual(scores):
                others = tuple(m.name for k, m in enumerate(models) if k != j)
                self.pair(files[i], models[j], "similar", others)
        return len(self.pairs) > before

    def unclear(self) -> tuple[Unclear, ...]:
        return tuple(Unclear(tuple(f.name for f in files), tuple(m.name for m in models))
                     for files, models in self.classes())  # fmt: skip


def _scopes(items: list[Item]) -> Mapping[str, frozenset[str]]:
    """The names in each scope; of scopes with the same names only the innermost."""
    found: dict[str, set[str]] = defaultdict(set)
    for item in items:
        for scope in item.scopes():
            found[scope].add(item.name)
    inner: dict[frozenset[str], str] = {}
    for scope, names in found.items():
        key = frozenset(names)
        inner[key] = max(inner.get(key, ""), scope, key=len)
    return {scope: names for names, scope in inner.items()}


def _mutual(scores: list[list[float]]) -> list[tuple[int, int]]:
    """Positions that are greater than all others of their row and of their column."""
    found = []
    for i, row in enumerate(scores):
        best = max(row)
        j = row.index(best)
        if best > 0 and row.count(best) == 1 and all(other[j] < best for k, other in enumerate(scores) if k != i):
            found.append((i, j))
    return found
