"""Chooses how a resident kernel is divided."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Unfit
from dslc.compiler.codegen.cuda.recurrent.core_room import CoreRoom, core_rooms
from dslc.compiler.codegen.cuda.recurrent.room import Room
from dslc.compiler.codegen.cuda.recurrent.scalar_room import ScalarRoom, scalar_rooms


def room_of(cell: Cell, warps: int, columns: int) -> Room:
    """The division of a cell's kernel into blocks of so many warps and columns."""
    return (CoreRoom if cell.factor.is_half else ScalarRoom)(cell, warps, columns)


def room_for(cell: Cell) -> Room:
    """The division of a cell's kernel whose step takes the least time by the model. Raises Unfit if no one fits."""
    rooms: list[Room] = [*(core_rooms(cell) if cell.factor.is_half else scalar_rooms(cell))]
    fitting = [room for room in rooms if room.fits]
    if not fitting:
        kept = "registers" if cell.factor.is_half else "shared memory"
        raise Unfit(f"its matrices or its rows do not fit the {kept} of all multiprocessors")
    return min(fitting, key=lambda room: room.step_seconds)
