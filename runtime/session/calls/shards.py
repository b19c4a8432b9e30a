"""A step whose batch is divided into shards: a run of ``train_step`` for each, then one of ``update_step``.

If the step has micro-batches, too, the rows of a shard are divided into these, with a run for each of them. All shards
read the same state. Their gradients and new buffers are added by the tree of ``shard_sum.py``; the update applies the
means and alone changes the state. If a step has several updates, each has both programs, and they run in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dslc.runtime.session.backend import LateOutputs
from dslc.runtime.session.batches import Cut
from dslc.runtime.session.calls.turns import of_turn

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.session.backend import Bound, Outputs, Sums
    from dslc.runtime.session.calls.call import Arrays
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.find_nonfinite import Nonfinite
    from dslc.runtime.session.state import State

    Scalars = Mapping[str, int | float]

#: Takes the memory for the sums over so many shards of so many runs of the first program, which the second one reads.
MakeSums: TypeAlias = "Callable[[Loaded, Loaded, int, int], Sums]"


class Shards:
    """The shards of this process: all of them, or the neighbours that its rank in ``group`` owns."""

    def __init__(self, interface: Interface, updating: Sequence[Loaded], make_sums: MakeSums) -> None:
        assert interface.train is not None and interface.batch is not None
        self.count, self._each, self._batch = interface.train.shards, interface.train.accumulate, interface.batch
        self._updating, self._make_sums = updating, make_sums
        self.group: Exchange | None = None
        self._sums: dict[Loaded, Sums] = {}

    def prepare(self, programs: Sequence[Loaded]) -> None:
        """Take the memory for the sums of these programs. OutOfMemory R401, ArtifactError R301."""
        for program in programs:
            self._sums[program] = self._make_sums(program, self._update_of(program), self.count, self._each)

    @property
    def owned(self) -> int:
        """The number of shards of this process."""
        return self.count if self.group is None else self.count // self.group.size

    @property
    def runs(self) -> int:
        """The number of runs of a step in this process: one for each micro-batch of its shards."""
        return self.owned * self._each

    def join(self, group: Exchange) -> None:
        """Compute this process's part of the shards from now on; the number of processes divides theirs."""
        assert self.count % group.size == 0
        self.group = group
        for sums in self._sums.values():
            sums.join(group)

    def run(
        self,
        context: Context,
        programs: Sequence[Loaded],
        by_row: frozenset[str],
        arrays: Arrays,
        scalars: Scalars,
        state: State,
    ) -> list[Outputs]:
        """Run the step on this process's rows, with a program for each update that has its own; returns loss and
        metrics of all runs of an update, then the update's outputs. An exception in an update leaves ``state`` torn."""
        number, alone = state.step, not state.shared
        found: list[Outputs] = []
        for program in programs:
            sums = self._sums[program]
            sums.begin()
            for index in range(self.runs):
                sums.run(self._shard(context, program, by_row, arrays, scalars, index))
            change = state.change(number, last=alone and program is programs[-1])
            outputs = sums.updated(partial(context.feed, self._update_of(program), scalars=scalars), change)
            late = isinstance(outputs, LateOutputs)
            done: Outputs = outputs if late else [(name, kind, view.copy()) for name, kind, view in outputs]
            found += [*sums.numbers(), done]
        if not alone:
            state.settle(number + 1)
        return found

    def search(
        self,
        context: Context,
        programs: Sequence[Loaded],
        by_row: frozenset[str],
        arrays: Arrays,
        scalars: Scalars,
        search: Callable[[Bound], Nonfinite | None],
    ) -> Nonfinite | None:
        """``run``, with a search for a value that is not finite in each part of the step."""
        for program in programs:
            for index in range(self.runs):
                found = search(self._shard(context, program, by_row, arrays, scalars, index))
                if found is not None:
                    return found
            # second runs, which change no state either, give what is added; nothing runs between them, because the
            # memory of a run lasts until the next one has ended
            sums = self._sums[program]
            sums.begin()
            for index in range(self.runs):
                sums.run(self._shard(context, program, by_row, arrays, scalars, index))
            found = search(context.feed(self._update_of(program), sums.total(), scalars))
            if found is not None:
                return found
        return None

    def _shard(
        self, context: Context, program: Loaded, by_row: frozenset[str], arrays: Arrays, scalars: Scalars, index: int
    ) -> Bound:
        """The bound plan of a run of this process, with its rows; draws count the rows of the whole batch."""
        size = program.sizes[self._batch]
        first = 0 if self.group is None else self.group.rank * self.runs
        rows = {**scalars, "row": scalars["row"] + (first + index) * size}
        return context.feed(program, arrays, rows, Cut(index * size, size, size), by_row)

    def _update_of(self, program: Loaded) -> Loaded:
        return of_turn(program, self._updating)
