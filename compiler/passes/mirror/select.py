"""Selects the values to recompute: most freed bytes per second first, as in a greedy knapsack.

``candidates.py`` says which values may be dropped. Values that share a source which is kept only for them form one
item, as the x of ``tanh(x + y1), tanh(x + y2), ...``. An item's price is the modelled seconds of recomputing it per
byte that this frees at the peak. The cheapest item goes first, with its price and lifetimes evaluated again at that
point. It is taken if it frees bytes at the peak and raises no other level above it. Items not alive at the peak wait
until the peak moves. At the end, values whose price has risen above the highest price paid, because others are computed
from them, are kept after all, and others replace them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dslc.compiler.cost import Machine
from dslc.compiler.ir.graph import Value
from dslc.compiler.passes.mirror.candidates import propose
from dslc.compiler.passes.mirror.lifetimes import Lifetimes
from dslc.compiler.passes.mirror.training_graph import TrainingGraph

_ROUNDS: Final = 4  # most passes over the waiting items
_DEARER: Final = 1.25  # price increase above which an item goes back to the queue
_MAX_REFINEMENTS: Final = 3  # most refinements of the whole selection


class _Item(NamedTuple):
    """Values that are dropped together, in order of the price, in seconds per byte. ``number`` is unique."""

    price: float
    number: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The values to drop, with the estimated peak in bytes and the modelled seconds that recomputing them adds."""

    dropped: frozenset[Value]
    peak: int
    seconds: float


class Knapsack:
    """A training graph and the values that may be dropped from it."""

    def __init__(self, training: TrainingGraph, machine: Machine) -> None:
        self.training = training
        self.machine = machine
        self.droppable = propose(training, training.candidates)
        self.position = {v: i for i, v in enumerate(training.wanted)}

    def choose(self, *, seconds: float = math.inf, peak: int = -1) -> Estimate:
        """Drops values until the estimate is at most ``peak`` bytes, or all that help within ``seconds``. The values
        that the source asks for are always dropped, and count."""
        lives = Lifetimes(self.training, self.machine, self.droppable)
        lives.drop(self._in_order(self.training.always & self.droppable))
        waiting = self._priced(lives)
        best = None
        for _ in range(_MAX_REFINEMENTS):
            waiting, price = self._filled(lives, waiting, seconds, peak)
            estimate = self._estimate(lives)
            if best is not None and _merit(estimate, peak) >= _merit(best, peak):
                break
            best = estimate
            kept = self._kept(lives, price)
            if not kept:
                break
            waiting += kept
        assert best is not None
        return best

    def _estimate(self, lives: Lifetimes) -> Estimate:
        between = self.droppable - self.training.wanted.keys()
        return Estimate(frozenset(lives.recipes) | between, lives.memory.top, lives.seconds)

    def _filled(self, lives: Lifetimes, waiting: list[_Item], seconds: float, peak: int) -> tuple[list[_Item], float]:
        """Takes the items that help; returns the others and the highest price paid."""
        dearest = 0.0
        for _ in range(_ROUNDS):
            before = len(waiting)
            waiting, paid = self._round(lives, waiting, seconds, peak)
            dearest = max(dearest, paid)
            if len(waiting) in (0, before) or lives.memory.top <= peak:
                break
        return waiting, dearest

    def _kept(self, lives: Lifetimes, price: float) -> list[_Item]:
        """Keeps values whose price has risen above ``price`` (others are computed from them) and returns them as
        items."""
        items: list[_Item] = []
        for value in self._in_order(v for v in lives.recipes if v not in self.training.always):
            recipe, spent = lives.recipes[value], lives.seconds
            if recipe.only_views or not recipe.in_memory or not lives.users.get(value):
                continue
            lives.keep(value)
            saved = (spent - lives.seconds) / self.training.bytes[value]
            if saved <= price:
                lives.undo()
            else:
                items.append(_Item(saved, len(self.position) + self.position[value], (value,)))
        return items

    def _in_order(self, values: Iterable[Value]) -> list[Value]:
        return sorted(values, key=self.position.__getitem__)

    def _round(self, lives: Lifetimes, items: list[_Item], seconds: float, peak: int) -> tuple[list[_Item], float]:
        """Tries each item once."""
        waiting: list[_Item] = []
        dearest = 0.0
        heapq.heapify(items)
        while items and lives.memory.top > peak:
            item = heapq.heappop(items)
            peak_level, top, spent = lives.memory.peak(), lives.memory.top, lives.seconds
            fits = lives.drop(item.values) and lives.seconds <= seconds
            freed = top - lives.memory[peak_level]
            if not fits or freed <= 0 or lives.memory.top > top:
                lives.undo()
                waiting.append(item)
                continue
            price = (lives.seconds - spent) / freed
            if items and price > max(items[0].price, _DEARER * item.price):
                lives.undo()
                heapq.heappush(items, item._replace(price=price))
            else:
                dearest = max(dearest, price)
        return waiting + items, dearest

    def _priced(self, lives: Lifetimes) -> list[_Item]:
        """Items with the price of dropping each alone, in seconds per byte, and a unique number."""
        items = []
        for number, values in enumerate(self._items(lives)):
            spent = lives.seconds
            lives.drop(values)
            price = (lives.seconds - spent) / sum(self.training.bytes[v] for v in values)
            lives.undo()
            items.append(_Item(price, number, values))
        return items

    def _items(self, lives: Lifetimes) -> list[tuple[Value, ...]]:
        """The values that may be dropped, grouped if a source would be kept only for several of them."""
        values = [v for v in self.training.wanted if v in self.droppable and v not in lives.recipes]
        new_sources: dict[Value, list[Value]] = {}  # a source that would be kept -> the values computed from it
        for value in values:
            lives.drop([value])
            for source in lives.recipes[value].sources:
                if self.training.is_new(source):
                    new_sources.setdefault(source, []).append(value)
            lives.undo()
        return _joined(values, new_sources.values())


def _merit(estimate: Estimate, peak: int) -> tuple[int, float]:
    """Less is better: bytes above the wanted peak, then time."""
    return max(estimate.peak, peak), estimate.seconds


def _joined(values: Sequence[Value], together: Iterable[Sequence[Value]]) -> list[tuple[Value, ...]]:
    """The values in groups, so that those of each of ``together`` are in one group (union-find)."""
    parent: dict[Value, Value] = {value: value for value in values}

    def root(value: Value) -> Value:
        while parent[value] is not value:
            parent[value] = value = parent[parent[value]]
        return value

    for first, *others in together:
        for value in others:
            parent[root(value)] = root(first)
    groups: dict[Value, list[Value]] = {}
    for value in values:
        groups.setdefault(root(value), []).append(value)
    return [tuple(members) for members in groups.values()]
