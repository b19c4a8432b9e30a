"""Training of a session: its steps, alone or as one of several processes, and the state that they need and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dslc.base.errors import InputError, RanksError
from dslc.runtime.session.find_nonfinite import Nonfinite
from dslc.runtime.session.results import StepResult
from dslc.runtime.session.step_queue import StepQueue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Backend
    from dslc.runtime.session.calls.loaded_calls import LoadedCalls
    from dslc.runtime.session.calls.run_scalars import RunScalars
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Context
    from dslc.runtime.session.context_pool import Pool
    from dslc.runtime.session.initial_values import InitialValues
    from dslc.runtime.session.state import State


@dataclass(frozen=True)
class Part:
    """``number``: (which part, of how many parts) of the optimizer's state this process was loaded for, (0, 1) for all
    of it. ``divided``: whether it has this part alone."""

    number: tuple[int, int]
    divided: bool


class Training:
    """The session's methods of the same names, which say what each does. Each step holds the session alone.

    ``calls``: those that the session was loaded for.
    """

    def __init__(
        self,
        calls: LoadedCalls,
        backend: Backend,
        pool: Pool[Context],
        state: State,
        initial: InitialValues,
        scalars: RunScalars,
        part: Part,
    ) -> None:
        self._calls, self._backend, self._pool, self._state = calls, backend, pool, state
        self._initial, self._scalars, self.part = initial, scalars, part
        self.group: Exchange | None = None

    @property
    def steps_per_launch(self) -> int:
        call = self._calls.train_step
        return 1 if call.train.parts > 1 else min(map(self._pool.any.steps, call.programs))

    def join(self, group: Exchange, name: str) -> None:
        """``name``: the artifact's."""
        shards = self._calls.train_step.shards
        count = 1 if shards is None else shards.count
        if count % group.size:
            said = f"{group.size} processes cannot share {count} shard{'s' * (count > 1)}"
            *few, most = (str(1 << power) for power in range(count.bit_length()))
            help = f"start {', '.join(few)}{' or ' * bool(few)}{most} process{'es' * bool(few)}"
            if group.size & (group.size - 1) == 0:  # a power of two, as the number of shards is
                help = f"write `mesh {{ shards = {group.size} }}` next to the model, or {help}"
            raise RanksError("R601", said, place=name, help=help)
        if self.part.number not in ((0, 1), (group.rank, group.size)):
            raise InputError("R105", f"this session is part {self.part.number}, not rank {group.rank} of {group.size}",
                             place="join", help=f"load it with part=({group.rank}, {group.size})")  # fmt: skip
        self._state.group = group
        if shards is not None:
            shards.join(group)
        self.group = group

    def train_step(
        self, unnamed: tuple[object, ...], inputs: Mapping[str, object], lr: float | None, row: int | None
    ) -> StepResult:
        call = self._calls.train_step
        call.by_name(unnamed)
        arrays, arguments, program = call.check(self._backend.adopt("train_step", inputs))
        rate = call.rate(lr)
        with self._pool.exclusive() as scope, scope as context:
            self._ready(context, "train_step")
            scalars = self._scalars.of_step(self._state.step, call.rows(program), row) | {"lr": rate} | arguments
            return call.run(context, program, arrays, scalars, self._state)

    def train_steps(
        self, batches: Iterable[Mapping[str, object]] | None, stacked: Mapping[str, object]
    ) -> list[StepResult]:
        call = self._calls.train_step
        stack = call.stacked(self._backend.adopt("train_steps", stacked)) if batches is None else None
        with self._pool.exclusive() as scope, scope as context:
            self._ready(context, "train_steps")
            adopt = partial(self._backend.adopt, "train_step")
            queue = StepQueue(call, context, self._state, self.steps_per_launch, adopt, self._scalars.of_step)
            try:
                if stack is None:
                    for given in batches or ():
                        queue.add(given)
                else:
                    queue.add_all(stack)
            finally:
                queue.flush()
            return queue.results

    def find_nonfinite(self, inputs: Mapping[str, object], lr: float | None, row: int | None) -> Nonfinite | None:
        call = self._calls.train_step
        arrays, arguments, program = call.check(inputs)
        rate = call.rate(lr)
        with self._pool.exclusive() as scope, scope as context:
            self._ready(context, "find_nonfinite")
            scalars = self._scalars.of_step(self._state.step, call.rows(program), row) | {"lr": rate} | arguments
            return call.first_nonfinite(context, program, arrays, scalars, self._state)

    def reset_state(self) -> None:
        with self._pool.exclusive() as scope, scope:
            self._state.ensure_ready("reset_state")
            if self._state.optimizer_ready:
                step = self._state.step
                self._state.tear()
                self._initial.fill_carried()
                self._state.settle(step)

    def copies(self, call: str) -> tuple[dict[str, NDArray[Any]], int]:
        """Copies of all state tensors, and the step's number. ``call``: the one that asks for them."""
        with self._pool.exclusive() as scope, scope as context:
            self._ready(context, call)
            return {name: self._state.read(name) for name in self._state.tensors}, self._state.step

    def _ready(self, context: Context, call: str) -> None:
        """Raise the error of a call before the state can be trained; fill the optimizer's slots if they are empty."""
        if self.part.divided and self.group is None:
            said = f"this session is part {self.part.number} of several, and has not joined the others"
            raise InputError("R105", said, place=call, help="call join, or load it without `part`")
        self._state.ensure_ready(call)
        if not self._state.optimizer_ready:
            self._initial.fill_optimizer(context, self._calls.init, self._scalars.of_run(step=0, row=0))
