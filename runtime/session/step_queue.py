"""Collects training steps, given one by one or as arrays of many, and runs as many together as a context takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dslc.runtime.session.results import StepResult

if TYPE_CHECKING:
    from dslc.runtime.session.backend import DeviceBound
    from dslc.runtime.session.calls.stack import Stack
    from dslc.runtime.session.calls.train_step import TrainStep
    from dslc.runtime.session.context import Context, Loaded
    from dslc.runtime.session.state import State

#: Computes a step's scalars from its number, its count of rows, and its ``row`` argument.
StepScalars: TypeAlias = "Callable[[int, int, Any], dict[str, int | float]]"


class StepQueue:
    """Steps that wait for a run of ``context`` with at most ``together`` steps; ``first`` is the number of the first
    step. ``results`` are those of the started steps, in order."""

    def __init__(
        self,
        call: TrainStep,
        context: Context,
        state: State,
        together: int,
        adopt: Callable[[Mapping[str, object]], Mapping[str, object]],
        scalars: StepScalars,
    ) -> None:
        self._call, self._context, self._state = call, context, state
        self._together, self._adopt, self._scalars = together, adopt, scalars
        self._bound: DeviceBound | None = None
        self._program: Loaded | None = None
        self._waiting: list[int] = []  # the numbers of steps whose inputs are in place
        self.first = state.step
        self.results: list[StepResult] = []

    @property
    def count(self) -> int:
        """The number of steps added."""
        return len(self.results) + len(self._waiting)

    def add(self, given: Mapping[str, object]) -> None:
        """Add a step by its named arguments; its inputs are copied before this returns. The waiting steps start as soon
        as they fill a run. InputError R105."""
        lr, row, inputs = self._call.parted(given)
        arrays, arguments, program = self._call.check(self._adopt(inputs))
        scalars = self._numbers(self._call.rows(program), self.count, lr, row, arguments)
        if self._together == 1:
            self.results.append(self._call.run(self._context, program, arrays, scalars, self._state))
            return
        if program is not self._program:
            self.flush()
        self._program = program
        self._bound = cast("DeviceBound", self._context.feed(program, arrays, scalars, step=len(self._waiting)))
        self._waiting.append(int(scalars["step"]))
        if len(self._waiting) == self._together:
            self.flush()

    def add_all(self, stack: Stack) -> None:
        """Add all steps of a stack; each input of a full run is copied at once."""
        before = self.count
        while (at := self.count - before) < stack.steps:
            if not self._add_run(stack, at):
                self.add(stack.of(at))

    def _add_run(self, stack: Stack, at: int) -> bool:
        """Start a full run with the steps of the stack from index ``at``; False if the steps must be added one by
        one."""
        count, call = self._together, self._call
        if count == 1 or self._waiting or at + count > stack.steps:
            return False
        _, _, program = call.check(call.parted(stack.of(at))[2], ranges=False)
        arrays = call.part(stack, at, count)
        if arrays is None:
            return False
        scalars, rows = [], call.rows(program)
        for step in range(count):
            lr, row, numbers = call.parted(stack.numbers_of(at + step))
            scalars.append(self._numbers(rows, self.count + step, lr, row, call.arguments(numbers)))
        self._program, self._bound = program, self._context.feed_steps(program, arrays, scalars)
        self._waiting = [int(each["step"]) for each in scalars]
        self.flush()
        return True

    def _numbers(
        self, rows: int, number: int, lr: float | None, row: int | None, arguments: Mapping[str, float]
    ) -> dict[str, int | float]:
        """The scalars of a step, from its number of rows and its number in this queue."""
        scalars = self._scalars(self.first + number, rows, row)
        return {**scalars, "lr": self._call.rate(lr), **arguments}

    def flush(self) -> None:
        """Start the waiting steps. An exception midway leaves the state torn."""
        if not self._waiting:
            return
        assert self._bound is not None
        steps, self._waiting = self._waiting, []
        changes = [self._state.change(self._state.step + number) for number in range(len(steps))]
        outputs = self._bound.run_steps(len(steps), changes)
        self.results += [self._call.late([one], step, self._state) for one, step in zip(outputs, steps, strict=True)]
