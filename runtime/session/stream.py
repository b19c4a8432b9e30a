"""A stream: calls of ``predict`` of which each begins with the states that the last one left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype
from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.backend import Backend
    from dslc.runtime.session.batches import Cut
    from dslc.runtime.session.calls.predict import Predict
    from dslc.runtime.session.context import Context, Loaded, States
    from dslc.runtime.session.context_pool import Pool
    from dslc.runtime.session.preparation import Preparation


class _Kept:
    """A stream's states while no context has them; None: the initial ones."""

    def __init__(self) -> None:
        self.values: States | None = None

    def save(self, states: States) -> None:
        self.values = states


class Stream:
    """Created by ``Session.stream``. Its calls run one after another, in one context of the session.

    Other calls may come between: a context keeps the states of the stream that used it last, and those of other streams
    wait in the host's memory.
    """

    def __init__(
        self,
        predict: Predict,
        pool: Pool[Context],
        backend: Backend,
        preparation: Preparation,
        *,
        number: int,
        alive: Callable[[str], None],
        scalars: Callable[..., dict[str, int | float]],
    ) -> None:
        self._predict, self._pool, self._backend, self._preparation = predict, pool, backend, preparation
        self._number, self._alive, self._scalars = number, alive, scalars
        self._program: Loaded | None = None  # that of the last call
        self._kept = _Kept()
        self._torn = False

    def predict(self, /, *unnamed: object, step: int = 0, row: int = 0, **inputs: object) -> Any:
        """``Session.predict`` with the states of the last call. The number of rows must be a built size; the calls may
        differ in sizes on which no state depends.

        Raises InputError R105, WeightsMissing R304; ArtifactError R310 after an interrupted call.
        """
        self._alive("stream.predict")
        call = self._predict
        call.by_name(unnamed)
        given = self._backend.adopt("predict", inputs)
        arrays, dims = call.check(given)
        program = call.matching(dims, whole=True)[0]
        scalars = self._scalars(step=step, row=row)

        def run(context: Context) -> Any:
            self._require_whole("stream.predict")
            self._require_fit(program)
            self._program, self._torn = program, True
            pieces: list[tuple[Loaded, Cut | None]] = [(program, None)]
            states = self._kept, self._kept.values
            on_device = given and all(isinstance(value, OnDevice) for value in given.values())
            if on_device:
                found = call.run_on_device(context, self._backend, arrays, dims, pieces, scalars, states)
            else:
                found = call.run(context, arrays, dims, pieces, scalars, states)
            self._torn = False
            return found

        return self._preparation.run(run, self._number)

    def reset(self) -> None:
        """Begin again with the initial states."""
        self._set(None)

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of the states by name, as the last call left them; empty if the next call begins with the initial
        ones. ArtifactError R310 after an interrupted call."""
        self._alive("stream.state")
        with self._pool.one(self._number) as scope, scope as context:
            self._require_whole("stream.state")
            if self._program is not None and context.holds(self._program.carried, self._kept):
                return context.states(self._program)
            return {name: array.copy() for name, array in (self._kept.values or {}).items()}

    @state.setter
    def state(self, values: Mapping[str, object]) -> None:
        """The states with which the next call begins: an array for each, with its shape and dtype. That call raises
        InputError R105 if they do not fit."""
        self._set({str(name): np.array(value) for name, value in values.items()})

    def _set(self, values: States | None) -> None:
        self._alive("stream.state")
        with self._pool.one(self._number) as scope, scope as context:
            self._torn = True  # until all of it is done: an interrupt may come between
            if self._program is not None:
                context.forget(self._program.carried, self._kept)
            self._program, self._kept.values = None, values
            self._torn = False

    def _require_whole(self, place: str) -> None:
        if self._torn:
            cause = "a call was interrupted: the stream's state mixes old and new values"
            raise ArtifactError("R310", cause, place=place, help="call reset() of the stream")

    def _require_fit(self, program: Loaded) -> None:
        before = self._program
        if before is not None and before.carried != program.carried:
            raise InputError(
                "R105",
                f"the stream's state is that of {before}, {program} has another",
                place="stream.predict",
                help="pass inputs of the same sizes, or call reset() of the stream",
            )
        if before is not None or self._kept.values is None:
            return
        have, wanted = self._kept.values, {s.name: s for s in program.carried}
        for name in (*wanted, *have):
            state, array = wanted.get(name), have.get(name)
            if state is None or array is None:
                cause = f"there is no state `{name}`" if state is None else f"the state `{name}` is missing"
            elif array.shape != state.shape or array.dtype != numpy_dtype(state.dtype):
                shown = f"{name_of(array.dtype) or array.dtype}{list(array.shape)}"
                cause = f"the state `{name}` is {shown}, expected {state.dtype}{list(state.shape)}"
            else:
                continue
            raise InputError("R105", cause, place="stream.state", help=f"give {', '.join(wanted)}")
