"""``train_step``: one batch per step, or many steps at once from arrays that hold all their batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.interface import Dim, Interface, Train
from dslc.runtime.artifact.reserved import LEAST_SCALE
from dslc.runtime.session.backend import LateOutputs
from dslc.runtime.session.batches import Cut
from dslc.runtime.session.calls.call import Arrays, Call, number, unbounded
from dslc.runtime.session.calls.shards import MakeSums, Shards
from dslc.runtime.session.calls.stack import Stack
from dslc.runtime.session.calls.turns import in_turn, of_turn
from dslc.runtime.session.find_nonfinite import Nonfinite, first_nonfinite
from dslc.runtime.session.inputs.arrays import as_array
from dslc.runtime.session.inputs.check import all_in_range, check_names
from dslc.runtime.session.results import LateStepResult, StepResult

if TYPE_CHECKING:
    from dslc.runtime.session.backend import Bound, Outputs
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.inputs.check import Look
    from dslc.runtime.session.state import State


class TrainStep(Call):
    """``train_step``: one batch of exactly the built size, or as many micro-batches or shards of it as the artifact
    requires."""

    entry = call = "train_step"

    def __init__(
        self,
        interface: Interface,
        programs: Sequence[Loaded],
        look: Look,
        accumulating: Sequence[Loaded],
        updating: Sequence[Loaded],
        make_sums: MakeSums,
    ) -> None:
        super().__init__(interface, programs, look)
        assert interface.train is not None, "an artifact with train_step has a train section"
        self.train = interface.train
        self.every, self.accumulating = self.programs, accumulating
        self.programs = [program for program in programs if not program.turn]
        self.shards = Shards(interface, updating, make_sums) if self.train.shards > 1 else None
        if self.shards is not None:
            self.shards.prepare(programs)
        self._found: tuple[Mapping[str, int], Loaded] | None = None  # the last call's dims and the program for them

    @cached_property
    def bounds(self) -> tuple[Dim, ...]:
        """The dims; the batch dim's bounds apply to a micro-batch or shard, so they do not limit a step of several
        ones."""
        several = self.train.parts > 1
        return tuple(unbounded(d) if d.batch and several else d for d in self.interface.dims)

    def sizes(self, program: Loaded) -> Mapping[str, int]:
        batch, parts = self.interface.batch, self.train.accumulate if self.shards is None else self.shards.runs
        return {n: v * parts if n == batch else v for n, v in program.sizes.items()}

    def shown(self, program: Loaded) -> str:
        batch = program.sizes.get(self.interface.batch or "")
        parts, called = self.train.accumulate, "micro-batches"
        if self.shards is not None:
            called = "shards" if parts == 1 else f"micro-batches in {self.shards.owned} shards"
            parts = self.shards.runs
        return super().shown(program) + (f" ({parts} {called} of {batch})" if parts > 1 else "")

    def check(self, given: Mapping[str, object], *, ranges: bool = True) -> tuple[Arrays, dict[str, float], Loaded]:
        """``checked``, with the program for the step."""
        arrays, arguments, dims = self.checked(given, ranges=ranges)
        if self._found is None or self._found[0] is not dims:
            self._found = (dims, self.matching(dims, whole=True)[0])
        return arrays, arguments, self._found[1]

    def rate(self, lr: float | None) -> float:
        """The learning rate of a step; InputError R105 for a negative one, as for any that is not finite."""
        rate = self.train.lr if lr is None else number(self.call, "lr", lr)
        if rate < 0:
            place = f"{self.call}(lr=...)"
            raise InputError("R105", f"`lr` is {rate:g}, which is negative", place=place, help="pass a float from 0")
        return rate

    def parted(self, given: Mapping[str, object]) -> tuple[Any, Any, dict[str, object]]:
        """``lr``, ``row`` and the inputs in a step's arguments. InputError R105 if they are not a mapping."""
        if not isinstance(given, Mapping):
            raise InputError(
                "R105", f"a batch is {type(given).__name__}, expected a mapping", place=f"{self.call}s(batches)",
                help='pass each batch by name, such as {"image": ..., "label": ...}',
            )  # fmt: skip
        return given.get("lr"), given.get("row"), {n: v for n, v in given.items() if n not in ("lr", "row")}

    def rows(self, program: Loaded) -> int:
        """Rows of a step, of all processes together; 0 for a model without a batch dim."""
        return program.sizes.get(self.interface.batch or "", 0) * self.train.parts

    def feed(
        self, context: Context, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float]
    ) -> Iterator[Bound]:
        """The bound plans of the step with their inputs, one per micro-batch, for each of its updates in turn; each
        must run before the next is requested."""
        count = self.train.accumulate
        if count == 1:
            yield context.feed(program, arrays, scalars)
            return
        size = program.sizes[self.interface.batch or ""]
        for whole in in_turn(self.train, program, self.every):
            before = of_turn(whole, self.accumulating)
            for start in range(0, count * size, size):
                last = start == (count - 1) * size
                rows = {**scalars, "row": scalars["row"] + start}
                yield context.feed(whole if last else before, arrays, rows, Cut(start, size, size), self.by_row)

    def run(
        self, context: Context, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float], state: State
    ) -> StepResult:
        """Run the step; loss and metrics are means over its micro-batches, and the loss of several updates is the sum
        of theirs. An exception midway leaves ``state`` torn."""
        step = int(scalars["step"])
        if self.shards is not None:
            programs = in_turn(self.train, program, self.every)
            parts = self.shards.run(context, programs, self.by_row, arrays, scalars, state)
            if isinstance(parts[-1], LateOutputs):
                return self.late(parts, step, state)
            return _step_result(parts, step, state.forward_order, self.train, judged=self.train.parts)
        runs: list[Outputs] = []
        number, count = state.step, self.train.accumulate * max(1, len(self.train.turns))
        for bound in self.feed(context, program, arrays, scalars):
            outputs = bound.run(state.change(number, last=len(runs) == count - 1))
            late = isinstance(outputs, LateOutputs)
            runs.append(outputs if late else [(name, kind, view.copy()) for name, kind, view in outputs])
        if late:
            return self.late(runs, step, state)
        return _step_result(runs, step, state.forward_order, self.train, judged=1)

    def first_nonfinite(
        self, context: Context, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float], state: State
    ) -> Nonfinite | None:
        """Run the step and stop at the first value that is not finite; the state is torn if there is one."""

        def search(bound: Bound) -> Nonfinite | None:
            state.tear()
            return first_nonfinite(bound, {name: state.read(name) for name in state.tensors})

        number = state.step
        if self.shards is not None:
            programs = in_turn(self.train, program, self.every)
            found = self.shards.search(context, programs, self.by_row, arrays, scalars, search)
        else:
            runs = map(search, self.feed(context, program, arrays, scalars))
            found = next((each for each in runs if each is not None), None)
        if found is None:
            state.settle(number + 1)
        return found

    def late(self, runs: Sequence[Outputs], step: int, state: State) -> StepResult:
        """The result of a step whose runs may still be executing."""
        judged = 1 if self.shards is None else self.train.parts
        return LateStepResult(step, partial(_step_result, runs, step, state.forward_order, self.train, judged))

    def stacked(self, given: Mapping[str, object]) -> Stack:
        """Arrays with the inputs of all steps along axis 0, and numbers, which apply to all steps or are one per step.
        InputError R105 for arrays of different lengths."""
        check_names(self.call, list(given), [t.name for t in self.tensors if t.name not in self.optional],
                    [*self.optional, *self.defaults, "lr", "row"])  # fmt: skip
        arrays = {t.name: as_array(self.call, t, given[t.name]) for t in self.tensors if t.name in given}
        numbers = {n: v for n, v in given.items() if n not in arrays}
        several = {n: list(v) for n, v in numbers.items() if isinstance(v, Sequence | np.ndarray) and np.ndim(v) == 1}
        lengths = {n: a.shape[0] if a.shape else 0 for n, a in arrays.items()} | {n: len(v) for n, v in several.items()}
        steps = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != steps:
                raise InputError(
                    "R105", f"`{name}` is for {length} steps, and `{next(iter(lengths))}` for {steps}",
                    place=f"{self.call}s({name}=...)", help="pass the same number of each",
                )  # fmt: skip
        return Stack(steps, arrays, several, {n: v for n, v in numbers.items() if n not in several})

    def part(self, stack: Stack, first: int, count: int) -> Arrays | None:
        """The arrays of ``count`` steps. The first step was checked, except its values; the others differ only in their
        values. None if they cannot be taken together, or if a value is out of range."""
        arrays = stack.part(first, count)
        dims = self._like.dims if self._like is not None else None
        if arrays is None or (dims is None and any(t.limits and t.name in arrays for t in self.tensors)):
            return None
        return arrays if all_in_range(arrays, self.tensors, dims or {}, self.look) else None


def _step_result(
    runs: Sequence[Outputs], step: int, forward_order: Sequence[str], train: Train, judged: int
) -> StepResult:
    """The result of a step from the outputs of its runs: means over its parts, and of metrics over the epoch the last
    value; the loss is the sum of those of all updates. ``judged``: how many of the last losses decide, with a loss
    scale, whether the step is skipped."""
    losses: list[float] = []
    metrics: dict[str, list[float]] = {}
    first, scale, skips = None, None, 0
    for outputs in runs:
        if isinstance(outputs, LateOutputs):
            outputs.settle()
        for name, kind, view in outputs:
            if kind == "loss":
                losses.append(float(view))
            elif kind == "metric":
                metrics.setdefault(name.removeprefix("metric."), []).append(float(view))
            elif kind == "flags" and first is None and view.any():
                first = forward_order[int(view.argmax())]
            elif kind == "scale":
                scale = float(view)
            elif kind == "skipped":
                skips = int(view)
    parts = train.parts
    loss = sum(_mean(losses[start : start + parts]) for start in range(0, len(losses), parts)) if losses else math.nan
    means = {n: v[-1] if n in train.epoch_metrics else _mean(v) for n, v in metrics.items()}
    if scale is None:
        return StepResult(loss, means, step, first)
    skipped = scale > LEAST_SCALE and (first is not None or not all(map(math.isfinite, losses[-judged:])))
    return StepResult(loss, means, step, None if skipped else first, scale, skipped, skips)


def _mean(values: Sequence[float]) -> float:
    """The mean; nan if there are no values."""
    return sum(values) / len(values) if values else math.nan
