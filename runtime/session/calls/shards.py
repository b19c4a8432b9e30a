"""A step whose batch is divided into shards: a run of ``train_step`` for each, then one of ``update_step``.

All shards read the same state. Their gradients and new buffers are added by the tree of ``shard_sum.py``; the update
applies the means and alone changes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dslc.runtime.session.batches import Cut
from dslc.runtime.session.calls.shard_sum import Parts, Tree, shard_bytes, sum_bytes
from dslc.runtime.session.host_memory import ensure_free

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.session.backend import Bound, Outputs
    from dslc.runtime.session.calls.call import Arrays
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.find_nonfinite import Nonfinite
    from dslc.runtime.session.state import State

    Scalars = Mapping[str, int | float]


class Shards:
    """The shards of this process: all of them, or the neighbours that its rank in ``group`` owns."""

    def __init__(self, interface: Interface, updating: Sequence[Loaded]) -> None:
        assert interface.train is not None and interface.batch is not None
        self.count, self._batch = interface.train.shards, interface.batch
        self._updating = updating
        self.group: Exchange | None = None
        self._trees: dict[Loaded, Tree] = {}

    def prepare(self, programs: Sequence[Loaded]) -> None:
        """Take the memory for the sums of these programs. OutOfMemory R401, ArtifactError R301."""
        for program in programs:
            need = sum_bytes(shard_bytes(program.plan), self.count, 1)
            ensure_free(need, [("the sums over shards", need)])
            self._tree(program)

    @property
    def owned(self) -> int:
        """The number of shards of this process."""
        return self.count if self.group is None else self.count // self.group.size

    def join(self, group: Exchange) -> None:
        """Compute this process's part of the shards from now on; the number of processes divides theirs."""
        assert self.count % group.size == 0
        self.group = group
        self._trees.clear()

    def run(
        self,
        context: Context,
        program: Loaded,
        by_row: frozenset[str],
        arrays: Arrays,
        scalars: Scalars,
        state: State,
    ) -> list[Outputs]:
        """Run the step on this process's rows; returns loss and metrics of all shards, then the update's outputs. An
        exception in the update leaves ``state`` torn."""
        tree, numbers = self._tree(program), []
        tree.begin()
        for index in range(self.owned):
            outputs = list(self._shard(context, program, by_row, arrays, scalars, index).run())
            tree.add(outputs)
            numbers.append(_numbers(outputs))
        bound, found = self._update(context, program, numbers, scalars)
        done: Outputs = [(name, kind, view.copy()) for name, kind, view in bound.run(state.change(state.step))]
        return [*found, done]

    def search(
        self,
        context: Context,
        program: Loaded,
        by_row: frozenset[str],
        arrays: Arrays,
        scalars: Scalars,
        search: Callable[[Bound], Nonfinite | None],
    ) -> Nonfinite | None:
        """``run``, with a search for a value that is not finite in each part of the step."""
        tree, numbers = self._tree(program), []
        tree.begin()
        for index in range(self.owned):
            found = search(self._shard(context, program, by_row, arrays, scalars, index))
            if found is not None:
                return found
            # a second run, which changes no state either, gives the outputs
            outputs = list(self._shard(context, program, by_row, arrays, scalars, index).run())
            tree.add(outputs)
            numbers.append(_numbers(outputs))
        return search(self._update(context, program, numbers, scalars)[0])

    def _shard(
        self, context: Context, program: Loaded, by_row: frozenset[str], arrays: Arrays, scalars: Scalars, index: int
    ) -> Bound:
        """The bound plan of a shard of this process, with its rows; draws count the rows of the whole batch."""
        size = program.sizes[self._batch]
        first = 0 if self.group is None else self.group.rank * self.owned
        rows = {**scalars, "row": scalars["row"] + (first + index) * size}
        return context.feed(program, arrays, rows, Cut(index * size, size, size), by_row)

    def _update(
        self, context: Context, program: Loaded, numbers: Sequence[Outputs], scalars: Scalars
    ) -> tuple[Bound, list[Outputs]]:
        """The bound plan of the update with the sums over all shards, and the numbers of all shards."""
        tree = self._tree(program)
        total = tree.total
        if self.group is not None:
            ports = [(name, kind) for name, kind, _ in numbers[0]]
            own = np.array([[view for _, _, view in row] for row in numbers], np.float64)
            total, rows = self.group.total(total, own)
            numbers = [[(name, kind, n) for (name, kind), n in zip(ports, row, strict=True)] for row in rows]
        return context.feed(self._update_of(program), tree.parts.arrays(total), scalars), list(numbers)

    def _update_of(self, program: Loaded) -> Loaded:
        return next(p for p in self._updating if p.sizes == program.sizes)

    def _tree(self, program: Loaded) -> Tree:
        """The tree for this program's sums."""
        if program not in self._trees:
            self._trees[program] = Tree(Parts(program.plan, self._update_of(program).plan), self.owned)
        return self._trees[program]


def _numbers(outputs: Outputs) -> Outputs:
    """Copies of the loss and the metrics of a shard, f64[]."""
    return [(name, kind, np.asarray(view, np.float64).copy()) for name, kind, view in outputs if kind != "shard"]
