"""Chooses how a resident kernel is divided."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.codegen.cuda.recurrent.division import MOST_BLOCKS, Division
from dslc.compiler.codegen.cuda.recurrent.scalar_division import scalar_divisions
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import factors_of, tensor_core_divisions


def best_division(cell: Cell, loops: int = 1) -> Division:
    """The division of a cell's kernel whose step takes the least time by the model. ``loops``: so many with this cell
    share the multiprocessors. Raises Unfit if no one fits."""
    most_blocks = MOST_BLOCKS // loops
    factors = factors_of(cell)
    fitting: list[Division] = []
    if factors is not None:
        fitting += tensor_core_divisions(cell, factors, most_blocks, dense=loops > 1)
    if not cell.factor.is_half:
        fitting += (division for division in scalar_divisions(cell, most_blocks) if division.fits)
    if not fitting:
        kept = "registers" if cell.factor.is_half else "shared memory"
        raise Unfit(f"its matrices or its rows do not fit the {kept} of all multiprocessors")
    return min(fitting, key=lambda division: division.step_seconds(loops))
