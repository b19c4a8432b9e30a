"""A context: the io and work blocks of one caller, with every program of the session bound to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.batches import Cut
from dslc.runtime.cpu.executor import BoundPlan, Meanings
from dslc.runtime.header import WRITERS
from dslc.runtime.memory import block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cpu.objects import Objects
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
    """Blocks of memory and bound plans. One caller at a time."""

    def __init__(
        self,
        state: NDArray[np.uint8],
        programs: list[Loaded],
        meanings: Meanings | None,
        constants: Callable[[str], bytes | memoryview],
        objects: Objects | None = None,
    ) -> None:
        # Programs overlay each other: one runs at a time.
        regions = {
            "state": state,
            "io": block(max((p.io_bytes for p in programs), default=0)),
            "work": block(max((p.work_bytes for p in programs), default=0)),
        }
        self._bound = {
            program: BoundPlan(
                program.plan,
                regions,
                meanings,
                constants,
                name=str(program),
                writes_state=program.entry in WRITERS,
                objects=objects,
            )
            for program in programs
        }
        self._last: Loaded | None = None

    def feed(
        self,
        program: Loaded,
        arrays: Mapping[str, NDArray[Any]],
        scalars: Mapping[str, int | float],
        piece: Cut | None = None,
        by_row: frozenset[str] = frozenset(),
    ) -> BoundPlan:
        """Copy the inputs in and give the bound plan, ready to run; its outputs stay until the next ``feed``.

        ``piece`` says which rows of the inputs named in ``by_row`` are meant; missing rows repeat the last one, so that
        they hold values the op takes. Raises InputError R105 for an array that does not have the program's shape.
        """
        bound = self._bound[program]
        bound.set_scalars(scalars)
        for name, view in bound.inputs.items():
            array = arrays[name]
            if piece is not None and name in by_row:
                array = array[piece.start : piece.start + piece.rows]
                if piece.rows < piece.size and array.shape[1:] == view.shape[1:]:
                    view[: piece.rows] = array
                    view[piece.rows :] = array[-1:]
                    continue
            if array.shape != view.shape:
                raise InputError(
                    "R105",
                    f"`{name}` has the shape {list(array.shape)}, {program} was built for {list(view.shape)}",
                    place=f"{program.entry}({name}=...)",
                    help="build the artifact with this size (--size), or give the size that was built",
                )
            np.copyto(view, array, casting="no")
        if self._last is not program:
            self._last = None  # until the constants are whole
            bound.load_constants()
            self._last = program
        return bound
