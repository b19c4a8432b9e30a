"""A context: all programs of the session bound to the memory of one caller."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.session.backend import OnDevice
from dslc.runtime.session.batches import Cut
from dslc.runtime.session.host_copies import copy_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Carried
    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.session.backend import Bound, ContextBlock, DeviceBound
    from dslc.runtime.session.calls.early import Early


States: TypeAlias = Mapping[str, "NDArray[Any]"]


class Holder(Protocol):
    """A caller whose states last from call to call. It keeps them while another caller uses the context."""

    def save(self, states: States, /) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A program of the artifact for one entry and one size, with its plan. ``carried``: its states; programs with the
    same ones share them. ``prepared_bytes``: the region that ``prepare`` writes, which programs share. ``turn``: the
    update that it is for, empty for the first or for all. ``early``: of a shard's program, what of its gradients other
    processes get while it runs."""

    entry: str
    sizes: Mapping[str, int]
    io_bytes: int
    work_bytes: int
    plan: Plan
    context_bytes: int = 0
    carried: tuple[Carried, ...] = ()
    prepared_bytes: int = 0
    turn: str = ""
    early: Early | None = None

    def __str__(self) -> str:
        sizes = ",".join(f"{name}={value}" for name, value in sorted(self.sizes.items()))
        entry = f"{self.entry}.{self.turn}" if self.turn else self.entry
        return f"{entry}@{sizes}" if sizes else entry


class Context:
    """Bound plans that share memory, so one runs at a time. One caller at a time."""

    def __init__(
        self, bound: Mapping[Loaded, Bound], blocks: Mapping[tuple[Carried, ...], ContextBlock] = MappingProxyType({})
    ) -> None:
        self._bound = bound
        self._blocks = blocks
        self._last: Loaded | None = None
        self._holders: dict[tuple[Carried, ...], weakref.ref[Holder]] = {}

    def steps(self, program: Loaded) -> int:
        """The largest number of steps in one run of the program."""
        return self._bound[program].steps

    def start(self, program: Loaded, holder: Holder | None = None, values: States | None = None) -> None:
        """Make the states of a program ready for a call: those that ``holder``'s last call left here, else ``values``,
        or the initial ones for None. What another holder left is saved before."""
        if not program.carried:
            return
        found = self._holders.get(program.carried)
        before = None if found is None else found()
        if before is not None and before is holder:
            return
        if before is not None:
            before.save(self.states(program))
        self._holders.pop(program.carried, None)
        block = self._blocks[program.carried]
        for state in program.carried:
            if values is None:
                block.fill(state)
            else:
                block.write(state.offset, values[state.name])
        if holder is not None:
            self._holders[program.carried] = weakref.ref(holder)

    def holds(self, layout: tuple[Carried, ...], holder: Holder) -> bool:
        """True if the states of this layout are what ``holder`` left here."""
        found = self._holders.get(layout)
        return found is not None and found() is holder

    def forget(self, layout: tuple[Carried, ...], holder: Holder) -> None:
        """Do not keep the states of ``holder`` any more."""
        if self.holds(layout, holder):
            del self._holders[layout]

    def states(self, program: Loaded) -> dict[str, NDArray[Any]]:
        """Copies of the program's states, by name."""
        found = {}
        for state in program.carried:
            found[state.name] = np.empty(state.shape, numpy_dtype(state.dtype))
            self._blocks[program.carried].read(state.offset, found[state.name])
        return found

    def feed(
        self,
        program: Loaded,
        arrays: Mapping[str, NDArray[Any] | OnDevice],
        scalars: Mapping[str, int | float],
        piece: Cut | None = None,
        by_row: frozenset[str] = frozenset(),
        step: int = 0,
        *,
        once: bool = False,
    ) -> Bound:
        """Copy the inputs in and return the bound plan, ready to run; its outputs stay valid until the next ``feed``.

        ``piece`` selects the rows of the inputs named in ``by_row``; missing rows repeat the last one, so that they
        hold values valid for the ops. ``step``: the step of the run that the inputs belong to; ``once``: it is the only
        one that reads them. Raises InputError R105 for an array without the program's shape.
        """
        bound = self._bound[program]
        bound.begin(step)
        bound.set_scalars(scalars)
        for name, view in bound.inputs.items():
            array = arrays[name]
            if piece is not None and name in by_row:
                array = array[piece.start : piece.start + piece.rows]
                if piece.rows < piece.size and array.shape[1:] == view.shape[1:]:
                    self._fill_up(bound, name, view, array, piece)
                    continue
            _check_shape(program, name, array.shape, view.shape)
            if isinstance(array, np.ndarray):
                bound.put(name, array, once=once)
            else:
                cast("DeviceBound", bound).place(name, array)
        self._load_constants(program, bound)
        return bound

    def feed_steps(
        self,
        program: Loaded,
        arrays: Mapping[str, NDArray[Any] | OnDevice],
        scalars: Sequence[Mapping[str, int | float]],
    ) -> DeviceBound:
        """``feed`` for the first steps of a run, one for each item of ``scalars``; ``arrays`` hold the inputs of all
        steps."""
        bound = cast("DeviceBound", self._bound[program])
        for step, values in enumerate(scalars):
            bound.begin(step)
            bound.set_scalars(values)
            for name, view in bound.inputs.items():
                array = arrays[name]
                _check_shape(program, name, array.shape[1:], view.shape)
                if isinstance(array, OnDevice):
                    bound.place(name, array.at(step))
        for name, view in bound.inputs_of(len(scalars)).items():
            array = arrays[name]
            if isinstance(array, np.ndarray):
                copy_into(view, array)
        self._load_constants(program, bound)
        return bound

    def _load_constants(self, program: Loaded, bound: Bound) -> None:
        if self._last is not program:
            self._last = None  # until all constants are copied
            bound.load_constants()
            self._last = program

    @staticmethod
    def _fill_up(bound: Bound, name: str, view: NDArray[Any], array: NDArray[Any] | OnDevice, piece: Cut) -> None:
        """Copies the given rows, then repeats the last one."""
        if isinstance(array, OnDevice):
            device_bound = cast("DeviceBound", bound)
            device_bound.place(name, array)
            for row in range(piece.rows, piece.size):
                device_bound.place(name, array[piece.rows - 1 : piece.rows], row)
            return
        view[: piece.rows] = array
        view[piece.rows :] = array[-1:]


def _check_shape(program: Loaded, name: str, given: tuple[int, ...], built: tuple[int, ...]) -> None:
    """Raises InputError R105 if an input does not have the program's shape."""
    if given != built:
        raise InputError(
            "R105",
            f"`{name}` has the shape {list(given)}, {program} was built for {list(built)}",
            place=f"{program.entry}({name}=...)",
            help="build the artifact with this size (--size), or pass an input of the built size",
        )
