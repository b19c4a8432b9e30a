"""The initial values of a session's state: drawn parameters, buffers, optimizer slots, and the states of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslc.runtime.artifact.dtypes import filled
from dslc.runtime.session.context import Context, Loaded
from dslc.runtime.session.state import State


class InitialValues:
    """Fills the state. Its callers hold the session alone, and mark the state as torn before.

    ``starts``: the value of each state that training carries from step to step, by the name of its tensor.
    """

    def __init__(self, state: State, starts: Mapping[str, Any]) -> None:
        self._state, self._starts = state, starts

    def fill(self, context: Context, program: Loaded, scalars: Mapping[str, int | float]) -> None:
        """All tensors. ``program``: the entry ``init``, which draws by the seed of ``scalars``."""
        self._state.clear_slots()
        context.feed(program, {}, scalars).run()
        self.fill_carried()

    def fill_carried(self) -> None:
        """The states that training carries, and nothing else."""
        for name in self._state.carried:
            tensor = self._state.tensors[name]
            self._state.write(name, filled(tensor.dtype, tensor.shape, self._starts[name]))

    def fill_optimizer(self, context: Context, program: Loaded, scalars: Mapping[str, int | float]) -> None:
        """The optimizer's slots and the states of training: loaded weights and the step stay. Marks the state as torn
        in between."""
        weights = {name: self._state.read(name) for name in self._state.weights}
        step = self._state.step
        self._state.tear()
        try:
            self.fill(context, program, scalars)
        finally:
            for name, value in weights.items():
                self._state.put(name, value)
        self._state.optimizer_ready = True
        self._state.settle(step)
