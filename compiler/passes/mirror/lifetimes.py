"""Estimated memory and time of a training step that recomputes some values, without building its graph.

A node's level is the longest path from an input. All nodes of a level are taken to run at once, as in the default
schedule. A value is in memory from the level of its producer to that of its last reader. A dropped value is in memory
up to its last forward reader; if its recipe writes it to memory, then also from its first to its last use in the
backward pass. What it is recomputed from lives until then, too. A pointwise value whose readers are pointwise nodes of
its phase will be inside a fused kernel and takes nothing.

Values are dropped one by one (``drop``), which updates the intervals of these values and of their sources alone.
``keep`` reverts a drop that no longer pays. ``undo`` reverts the last call of either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from dslc.compiler.cost import Machine
from dslc.compiler.ir.graph import Node, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.passes.mirror.range_max_tree import RangeMaxTree
from dslc.compiler.passes.mirror.recipes import Recipe, recipe_of
from dslc.compiler.passes.mirror.training_graph import TrainingGraph, is_inline
from dslc.compiler.passes.plan.schedule import contents, levels

#: The longest chain of values, each recomputed from the one before, that a drop may move; longer ones are left alone.
_LONGEST: Final = 64


class _Levels:
    """When nodes run and when values are read, as long as nothing is recomputed."""

    def __init__(self, training: TrainingGraph, dropped_views: Collection[Value]) -> None:
        """``dropped_views``: views that are made again, so their readers in later phases belong to their recipes."""
        self._training = training
        self.content = contents(training.graph)
        self.of = self._levels()
        self.reads_until = self._reads_until()
        self.last_forward_read: dict[Value, int] = {}
        self.last_read: dict[Value, int] = {}
        for node in training.graph.nodes:
            for value in node.inputs:
                content = self.content[value]
                if node.phase is Phase.FORWARD:
                    self.last_forward_read[content] = max(self.last_forward_read.get(content, 0), self.of[node])
                elif value in dropped_views:
                    continue
                self.last_read[content] = max(self.last_read.get(content, 0), self.of[node])

    def is_in_memory(self, node: Node, value: Value) -> bool:
        """Whether a node's result takes memory of the step: it is not part of the state, and not inside of a kernel."""
        if value in self._training.kept_in_any_case:
            return False
        readers = self._training.readers.get(value, ())
        return not isinstance(node.op, Pointwise) or any(
            r.phase is not node.phase or not isinstance(r.op, Pointwise) for r in readers
        )

    def _levels(self) -> dict[Node, int]:
        """The level of each node. A view, or a node fused into a later kernel, gets its first reader's level. Other
        later-phase nodes that depend only on the forward pass come just before their first reader."""
        level = levels(self._training.graph)
        readers = self._training.readers
        for node in reversed(self._training.graph.nodes):
            if node.phase is Phase.FORWARD:
                continue
            first = min((level[r] for v in node.outputs for r in readers.get(v, ())), default=level[node])
            if node.op.view or not any(self.is_in_memory(node, v) for v in node.outputs):
                level[node] = first
            elif all(v.producer.phase is Phase.FORWARD for v in node.inputs if isinstance(v.producer, Node)):
                level[node] = max(level[node], first - 1)
        return level

    def _reads_until(self) -> dict[Node, int]:
        """The last level at which a node reads its inputs; for a view, that of its readers."""
        until: dict[Node, int] = {}
        for node in reversed(self._training.graph.nodes):
            until[node] = self.of[node]
            if node.op.view:
                readers = self._training.readers.get(node.out, ())
                until[node] = max((until[r] for r in readers), default=until[node])
        return until


@dataclass(slots=True)
class _Interval:
    """The levels at which a value is in memory: from ``start`` to ``end`` and, if it is recomputed, from ``again`` to
    ``again_end``. It then takes memory of its own if it is a ``copy``. An interval whose start is greater than its end
    is empty."""

    start: int
    end: int
    again: int = 1
    again_end: int = 0
    copy: bool = False


class Lifetimes:
    """The estimate. ``recipes``: the dropped values; ``memory``: bytes by level; ``seconds``: of all recipes."""

    def __init__(self, training: TrainingGraph, machine: Machine, droppable: Collection[Value]) -> None:
        """``droppable``: the values that may be dropped."""
        self.training = training
        self.droppable = droppable
        self.recipes: dict[Value, Recipe] = {}
        self.seconds = 0.0
        self.users: dict[Value, dict[Value, None]] = {}  # source -> the dropped values that are computed from it
        self.intervals: dict[Value, _Interval] = {}
        self._machine = machine
        content = contents(training.graph)
        views = [v for v in training.wanted if v in droppable and content[v] is not v]
        self._levels = _Levels(training, set(views))
        self.memory = RangeMaxTree(max(self._levels.of.values(), default=0) + 2)
        self._place_all()
        #: What ``undo`` restores: recipes (None: the value was not dropped) and intervals before the last change.
        self._old_recipes: list[tuple[Value, Recipe | None]] = []
        self._old_intervals: list[tuple[Value, _Interval]] = []
        self.drop(views)
        self.drop([v for v in training.wanted if v in droppable and v not in self.recipes and self._fuses_away(v)])

    def drop(self, values: Iterable[Value]) -> bool:
        """Drops values, given in forward order. False if a chain would be too long; the caller must then ``undo``."""
        self._old_recipes, self._old_intervals = [], []
        dropped = dict.fromkeys(values)
        for value in dropped:
            self._choose_recipe(value)
        users = dict.fromkeys(u for v in dropped for u in self.users.get(v, ()) if u not in dropped)
        for user in users:  # these may now be computed from the dropped values' sources
            self._choose_recipe(user)
        extra_outputs = [
            source
            for value in (*dropped, *users)
            for source in self.recipes[value].sources
            if source in self.recipes and self.recipes[source].extra_output
        ]
        for source in dict.fromkeys(extra_outputs):
            self._choose_recipe(source)
        return self._update_intervals([*dropped, *users, *extra_outputs])

    def keep(self, value: Value) -> None:
        """Reverts the drop of a value that its recipe writes to memory; values computed from it stay dropped."""
        recipe = self.recipes[value]
        self._old_recipes, self._old_intervals = [(value, recipe)], []
        self._remove(value)
        for source in recipe.sources:
            if source in self.recipes and not self.users[source]:
                self._choose_recipe(source)
        self._update_intervals([value, *recipe.sources])

    def undo(self) -> None:
        """Reverts the last ``drop`` or ``keep``."""
        for value, interval in reversed(self._old_intervals):
            self._set_interval(value, self.intervals[value], interval)
        for value, recipe in reversed(self._old_recipes):
            if value in self.recipes:
                self._remove(value)
            if recipe is not None:
                self._add(recipe)
        self._old_intervals, self._old_recipes = [], []

    # Recipes.

    def _choose_recipe(self, value: Value) -> None:
        """Gives a dropped value the recipe that is cheapest with the values dropped now."""
        self._old_recipes.append((value, self.recipes.get(value)))
        if value in self.recipes:
            self._remove(value)
        self._add(self._recipe(value, is_source=bool(self.users.get(value))))

    def _recipe(self, value: Value, *, is_source: bool = False) -> Recipe:
        return recipe_of(self.training, self._is_dropped, self.recipes, value, self._machine, is_source=is_source)

    def _is_dropped(self, value: Value) -> bool:
        return value in self.recipes or (value in self.droppable and value not in self.training.wanted)

    def _fuses_away(self, value: Value) -> bool:
        """Whether fusion alone removes the value from memory."""
        if not self.training.recomputes_inputs or any(not is_inline(r, value) for r in self.training.wanted[value]):
            return False
        recipe = self._recipe(value)
        return not recipe.in_memory and recipe.seconds == 0.0

    def _add(self, recipe: Recipe) -> None:
        self.recipes[recipe.value] = recipe
        self.seconds += recipe.seconds
        for source in recipe.sources:
            self.users.setdefault(source, {})[recipe.value] = None
            self.users.setdefault(self._levels.content[source], {})[recipe.value] = None

    def _remove(self, value: Value) -> None:
        recipe = self.recipes.pop(value)
        self.seconds -= recipe.seconds
        for source in recipe.sources:
            self.users[source].pop(value, None)
            self.users[self._levels.content[source]].pop(value, None)

    # Intervals.

    def _place_all(self) -> None:
        """The interval of each value if nothing is dropped."""
        for node in self.training.graph.nodes:
            for value in () if node.op.view else node.outputs:
                if self._levels.is_in_memory(node, value):
                    start = self._levels.of[node]
                    interval = _Interval(start, max(start, self._levels.last_read.get(value, 0)))
                    self.intervals[value] = interval
                    self.memory.add(interval.start, interval.end, self.training.bytes[value])

    def _update_intervals(self, values: list[Value]) -> bool:
        """Updates the intervals of the values and of everything that they are computed from."""
        steps = 0
        todo = list(reversed(values))
        for value in values:
            todo += self.recipes[value].sources if value in self.recipes else ()
        while todo:
            value = todo.pop()
            value = value if value in self.recipes else self._levels.content[value]
            old = self.intervals.get(value)
            if old is None:
                if value not in self.recipes:
                    continue  # an input
                old = _Interval(0, -1)
            new = self._interval(value, old)
            if new == old:
                continue
            self._old_intervals.append((value, old))
            self._set_interval(value, old, new)
            if value in self.recipes and (new.again, new.again_end) != (old.again, old.again_end):
                steps += 1
                todo += self.recipes[value].sources
            if steps > _LONGEST + len(values):
                return False
        return True

    def _interval(self, value: Value, old: _Interval) -> _Interval:
        """The interval of a value with the recipes as they are now."""
        levels, recipe = self._levels, self.recipes.get(value)
        uses = [self._use(user, value) for user in self.users.get(value, ())]
        if recipe is None:
            end = max(old.start, levels.last_read.get(value, 0), *(last for _, last in uses), 0)
            return _Interval(old.start, end)
        end = max(old.start, levels.last_forward_read.get(value, 0)) if old.end >= old.start else old.end
        uses += [(levels.of[r], levels.reads_until[r]) for r in recipe.in_memory]
        if not uses:
            return _Interval(old.start, end)
        again, again_end = min(first for first, _ in uses), max(last for _, last in uses)
        return _Interval(old.start, end, again, again_end, copy=not recipe.only_views)

    def _use(self, user: Value, source: Value) -> tuple[int, int]:
        """The first and last level at which the recipe of ``user`` reads a source."""
        recipe, interval = self.recipes[user], self.intervals.get(user)
        at = [self._levels.of[r] for r in recipe.inline]
        if interval is not None and interval.again <= interval.again_end:
            at.append(interval.again)
            if recipe.only_views:
                at.append(interval.again_end)
        return (min(at), max(at)) if at else (self._levels.of[recipe.in_memory[0]], 0)

    def _set_interval(self, value: Value, old: _Interval, new: _Interval) -> None:
        size = self.training.bytes[value]
        self.intervals[value] = new
        if (old.start, old.end) != (new.start, new.end):
            self._add_bytes(old.start, old.end, -size)
            self._add_bytes(new.start, new.end, size)
        if old.copy:
            self._add_bytes(old.again, old.again_end, -size)
        if new.copy:
            self._add_bytes(new.again, new.again_end, size)

    def _add_bytes(self, first: int, last: int, size: int) -> None:
        if first <= last:
            self.memory.add(first, last, size)
