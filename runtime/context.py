"""A context: every program of the session bound to the memory of one caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.backend import OnDevice
from dslc.runtime.batches import Cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.backend import Bound, DeviceBound
    from dslc.runtime.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A program of the artifact for one entry and one size, with its plan."""

    entry: str
    sizes: Mapping[str, int]
    io_bytes: int
    work_bytes: int
    plan: Plan

    def __str__(self) -> str:
        sizes = ",".join(f"{name}={value}" for name, value in sorted(self.sizes.items()))
        return f"{self.entry}@{sizes}" if sizes else self.entry


class Context:
    """Bound plans that overlay each other: one runs at a time. One caller at a time."""

    def __init__(self, bound: Mapping[Loaded, Bound]) -> None:
        self._bound = bound
        self._last: Loaded | None = None

    def steps(self, program: Loaded) -> int:
        """How many steps a run of the program takes at most."""
        return self._bound[program].steps

    def feed(
        self,
        program: Loaded,
        arrays: Mapping[str, NDArray[Any] | OnDevice],
        scalars: Mapping[str, int | float],
        piece: Cut | None = None,
        by_row: frozenset[str] = frozenset(),
        step: int = 0,
    ) -> Bound:
        """Copy the inputs in and give the bound plan, ready to run; its outputs stay until the next ``feed``.

        ``piece`` says which rows of the inputs named in ``by_row`` are meant; missing rows repeat the last one, so that
        they hold values the op takes. ``step``: which of the run's steps the inputs are for. Raises InputError R105 for
        an array that does not have the program's shape.
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
            if array.shape != view.shape:
                raise InputError(
                    "R105",
                    f"`{name}` has the shape {list(array.shape)}, {program} was built for {list(view.shape)}",
                    place=f"{program.entry}({name}=...)",
                    help="build the artifact with this size (--size), or give the size that was built",
                )
            if isinstance(array, np.ndarray):
                np.copyto(view, array, casting="no")
            else:
                cast("DeviceBound", bound).place(name, array)
        if self._last is not program:
            self._last = None  # until the constants are whole
            bound.load_constants()
            self._last = program
        return bound

    @staticmethod
    def _fill_up(bound: Bound, name: str, view: NDArray[Any], array: NDArray[Any] | OnDevice, piece: Cut) -> None:
        """The rows there are, then the last one again and again."""
        if isinstance(array, OnDevice):
            device_bound = cast("DeviceBound", bound)
            device_bound.place(name, array)
            for row in range(piece.rows, piece.size):
                device_bound.place(name, array[piece.rows - 1 : piece.rows], row)
            return
        view[: piece.rows] = array
        view[piece.rows :] = array[-1:]
