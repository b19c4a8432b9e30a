"""Training steps that are given one by one and run as many together as a context takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from dslc.runtime.results import StepResult

if TYPE_CHECKING:
    from dslc.runtime.backend import DeviceBound
    from dslc.runtime.calls.call import Arrays
    from dslc.runtime.calls.train_step import TrainStep
    from dslc.runtime.context import Context, Loaded
    from dslc.runtime.state import State


class StepQueue:
    """Steps on their way into a run of ``context``, at most ``together``. ``results`` are those of the steps that were
    started, in order."""

    def __init__(self, call: TrainStep, context: Context, state: State, together: int) -> None:
        self._call, self._context, self._state = call, context, state
        self._together = together
        self._bound: DeviceBound | None = None
        self._program: Loaded | None = None
        self._waiting: list[int] = []  # the numbers of steps whose inputs are in place
        self.results: list[StepResult] = []

    @property
    def count(self) -> int:
        """How many steps were given."""
        return len(self.results) + len(self._waiting)

    def add(self, program: Loaded, arrays: Arrays, scalars: Mapping[str, int | float]) -> None:
        """Take a step, whose inputs are copied before this returns; it is started, with those before it, when they are
        enough."""
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

    def flush(self) -> None:
        """Start the steps that wait. The state is torn if this raises halfway."""
        if not self._waiting:
            return
        assert self._bound is not None
        steps, self._waiting = self._waiting, []
        outputs = self._bound.run_steps(len(steps), before_writing=self._state.tear)
        self._state.torn = False
        self.results += [self._call.late([one], step, self._state) for one, step in zip(outputs, steps, strict=True)]
