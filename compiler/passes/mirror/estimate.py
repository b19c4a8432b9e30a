"""Estimates peak memory and modelled time of a set of recomputed values without building the graph.

A node's level is the longest path from an input. A value is alive from its producer's level to that of its last reader.
This models the default schedule with all nodes of a level running at once. A pointwise value whose readers are
pointwise nodes of its phase will be inside a fused kernel and counts as nothing.

Values are dropped one by one. A drop only updates the levels that the value and its sources touch, since the sources
live longer: ``Lifetimes.drop``, and ``undo`` if it does not pay. ``keep`` reverts a drop that no longer pays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dslc.compiler.cost import Machine
from dslc.compiler.ir.graph import Node, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.passes.mirror.candidates import Choice, Facts, is_inline
from dslc.compiler.passes.mirror.rewrite import Recipe, recipe_of
from dslc.compiler.passes.plan.schedule import contents, levels

#: The longest chain of values, each computed from the one before, that a drop may move; longer chains are left alone.
_LONGEST: Final = 64


class RangeMaxTree:
    """A segment tree with range add and maximum. Adding and finding the maximum take log n."""

    def __init__(self, count: int) -> None:
        self.leaves = 1 << max(0, count - 1).bit_length()
        self.more = [0] * (2 * self.leaves)  # amounts added to all leaves below the node
        self.most = [0] * (2 * self.leaves)

    def add(self, first: int, last: int, amount: int) -> None:
        """Adds to the places ``first`` to ``last``, both included."""
        more, most = self.more, self.most
        low, high = first + self.leaves, last + self.leaves + 1
        ends = (low, high - 1)
        while low < high:
            if low & 1:
                more[low] += amount
                most[low] += amount
                low += 1
            if high & 1:
                high -= 1
                more[high] += amount
                most[high] += amount
            low >>= 1
            high >>= 1
        for at in ends:
            at >>= 1
            while at:
                left, right = most[2 * at], most[2 * at + 1]
                most[at] = more[at] + (left if left > right else right)
                at >>= 1

    @property
    def top(self) -> int:
        """The maximum."""
        return self.most[1]

    def peak(self) -> int:
        """The first place of the maximum."""
        at = 1
        while at < self.leaves:
            at = 2 * at if self.most[2 * at] >= self.most[2 * at + 1] else 2 * at + 1
        return at - self.leaves

    def __getitem__(self, place: int) -> int:
        at, found = place + self.leaves, 0
        while at:
            found += self.more[at]
            at >>= 1
        return found


@dataclass(slots=True)
class _LiveInterval:
    """The levels at which a value is in memory: from ``start`` to ``end`` and, if recomputed, from ``back`` to
    ``last``. The second stay takes memory of its own if it is a ``copy``. If a first level is greater than its last
    one, the stay is empty."""

    start: int
    end: int
    back: int = 1
    last: int = 0
    copy: bool = False


class Lifetimes:
    """The lifetimes of a graph's values over its levels, with some values dropped."""

    def __init__(self, facts: Facts, machine: Machine, most: Choice) -> None:
        """``most``: the values that may be dropped."""
        self.facts = facts
        self.machine = machine
        self.most = most
        graph = facts.graph
        self.level = self._when()
        self.content = contents(graph)
        self.until = self._until()
        self.memory = RangeMaxTree(max(self.level.values(), default=0) + 2)
        self.known: dict[Value, Recipe] = {}
        self.seconds = 0.0
        self.users: dict[Value, dict[Value, None]] = {}  # source -> the dropped values that are computed from it
        self.intervals: dict[Value, _LiveInterval] = {}
        self.forward_end: dict[Value, int] = {}
        self.end: dict[Value, int] = {}  # last level read, without the needs of recipes
        views = [v for v in facts.wanted if v in most.dropped and self.content[v] is not v]
        dropped_views = {*views}
        for node in graph.nodes:
            at = self.level[node]
            for value in node.inputs:
                content = self.content[value]
                if node.phase is Phase.FORWARD:
                    self.forward_end[content] = max(self.forward_end.get(content, 0), at)
                elif value in dropped_views:
                    continue  # the readers of a dropped view belong to its recipe
                self.end[content] = max(self.end.get(content, 0), at)
        for node in graph.nodes:
            for value in () if node.op.view else node.outputs:
                if self._in_memory(node, value):
                    stay = _LiveInterval(self.level[node], max(self.level[node], self.end.get(value, 0)))
                    self.intervals[value] = stay
                    self.memory.add(stay.start, stay.end, facts.bytes[value])
        self._changed: list[tuple[Value, Recipe | None]] = []
        self._moved: list[tuple[Value, _LiveInterval]] = []
        self.drop(views)
        self.drop([v for v in facts.wanted if v in most.dropped and v not in self.known and self._absorbed(v)])

    def _when(self) -> dict[Node, int]:
        """The level of each node. A view, or a node fused into a later kernel, gets its first reader's level. Other
        later-phase nodes that depend only on the forward pass come just before their first reader."""
        level = levels(self.facts.graph)
        for node in reversed(self.facts.graph.nodes):
            if node.phase is Phase.FORWARD:
                continue
            first = min((level[r] for v in node.outputs for r in self.facts.readers.get(v, ())), default=level[node])
            if node.op.view or not any(self._in_memory(node, v) for v in node.outputs):
                level[node] = first
            elif all(v.producer.phase is Phase.FORWARD for v in node.inputs if isinstance(v.producer, Node)):
                level[node] = max(level[node], first - 1)
        return level

    def _until(self) -> dict[Node, int]:
        """The last level at which a node reads its inputs; for a view, that of its readers."""
        until: dict[Node, int] = {}
        for node in reversed(self.facts.graph.nodes):
            until[node] = self.level[node]
            if node.op.view:
                until[node] = max((until[r] for r in self.facts.readers.get(node.out, ())), default=until[node])
        return until

    def _in_memory(self, node: Node, value: Value) -> bool:
        if value in self.facts.kept_in_any_case:
            return False
        readers = self.facts.readers.get(value, ())
        return not isinstance(node.op, Pointwise) or any(
            r.phase is not node.phase or not isinstance(r.op, Pointwise) for r in readers
        )

    def drop(self, values: Iterable[Value]) -> bool:
        """Drops values, given in forward order. False if a chain would be too long; the caller must then ``undo``."""
        self._changed, self._moved = [], []
        fresh = dict.fromkeys(values)
        for value in fresh:
            self._renew(value)
        users = dict.fromkeys(u for v in fresh for u in self.users.get(v, ()) if u not in fresh)
        for user in users:  # these may now be computed from the dropped values' sources
            self._renew(user)
        stored = [
            s for v in (*fresh, *users) for s in self.known[v].sources if s in self.known and self.known[s].extra_output
        ]
        for source in dict.fromkeys(stored):
            self._renew(source)
        return self._settle([*fresh, *users, *stored])

    def _absorbed(self, value: Value) -> bool:
        """Whether fusion alone removes the value from memory."""
        if not self.facts.recomputes_inputs or any(not is_inline(r, value) for r in self.facts.wanted[value]):
            return False
        recipe = recipe_of(self.facts, self._dropped, self.known, value, self.machine)
        return not recipe.in_memory and recipe.seconds == 0.0

    def _renew(self, value: Value) -> None:
        old = self.known.get(value)
        self._changed.append((value, old))
        if old is not None:
            self._leave(value)
        is_source = bool(self.users.get(value))
        self._enter(recipe_of(self.facts, self._dropped, self.known, value, self.machine, is_source=is_source))

    def _dropped(self, value: Value) -> bool:
        return value in self.known or (value in self.most.dropped and value not in self.facts.wanted)

    def _enter(self, recipe: Recipe) -> None:
        self.known[recipe.value] = recipe
        self.seconds += recipe.seconds
        for source in recipe.sources:
            self.users.setdefault(source, {})[recipe.value] = None
            self.users.setdefault(self.content[source], {})[recipe.value] = None

    def _leave(self, value: Value) -> None:
        recipe = self.known.pop(value)
        self.seconds -= recipe.seconds
        for source in recipe.sources:
            self.users[source].pop(value, None)
            self.users[self.content[source]].pop(value, None)

    def _settle(self, values: list[Value]) -> bool:
        """Updates the intervals of the values and of everything that they are computed from."""
        steps = 0
        todo = list(reversed(values))
        for value in values:
            todo += self.known[value].sources if value in self.known else ()
        while todo:
            value = todo.pop()
            value = value if value in self.known else self.content[value]
            old = self.intervals.get(value)
            if old is None:
                if value not in self.known:
                    continue  # an input
                old = _LiveInterval(0, -1)
            new = self._stay(value, old)
            if new == old:
                continue
            self._moved.append((value, old))
            self._shift(value, old, new)
            if value in self.known and (new.back, new.last) != (old.back, old.last):
                steps += 1
                todo += self.known[value].sources
            if steps > _LONGEST + len(values):
                return False
        return True

    def _stay(self, value: Value, old: _LiveInterval) -> _LiveInterval:
        needs = [self._need(user, value) for user in self.users.get(value, ())]
        recipe = self.known.get(value)
        if recipe is None:
            return _LiveInterval(old.start, max(old.start, self.end.get(value, 0), *(last for _, last in needs), 0))
        end = max(old.start, self.forward_end.get(value, 0)) if old.end >= old.start else old.end
        needs += [(self.level[r], self.until[r]) for r in recipe.in_memory]
        if not needs:
            return _LiveInterval(old.start, end)
        return _LiveInterval(
            old.start, end, min(first for first, _ in needs), max(last for _, last in needs), not recipe.only_views
        )

    def _need(self, user: Value, source: Value) -> tuple[int, int]:
        """The first and last level at which a dropped value's recipe needs a source."""
        recipe, stay = self.known[user], self.intervals.get(user)
        at = [self.level[r] for r in recipe.inline]
        if stay is not None and stay.back <= stay.last:
            at.append(stay.back)
            if recipe.only_views:
                at.append(stay.last)
        return (min(at), max(at)) if at else (self.level[recipe.in_memory[0]], 0)

    def _shift(self, value: Value, old: _LiveInterval, new: _LiveInterval) -> None:
        size = self.facts.bytes[value]
        self.intervals[value] = new
        if (old.start, old.end) != (new.start, new.end):
            self._add(old.start, old.end, -size)
            self._add(new.start, new.end, size)
        if old.copy:
            self._add(old.back, old.last, -size)
        if new.copy:
            self._add(new.back, new.last, size)

    def _add(self, first: int, last: int, size: int) -> None:
        if first <= last:
            self.memory.add(first, last, size)

    def keep(self, value: Value) -> None:
        """Reverts the drop of a value that returns to memory; values computed from it stay dropped."""
        recipe = self.known[value]
        self._changed, self._moved = [(value, recipe)], []
        self._leave(value)
        for source in recipe.sources:
            if source in self.known and not self.users[source]:
                self._renew(source)
        self._settle([value, *recipe.sources])

    def undo(self) -> None:
        """Reverts the last ``drop`` or ``keep``."""
        for value, old in reversed(self._moved):
            self._shift(value, self.intervals[value], old)
        for value, recipe in reversed(self._changed):
            if value in self.known:
                self._leave(value)
            if recipe is not None:
                self._enter(recipe)
        self._moved, self._changed = [], []
