"""Chooses how a resident kernel is divided."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.scalar_division import scalar_divisions
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import tensor_core_divisions


def best_division(cell: Cell) -> Division:
    """The division of a cell's kernel whose step takes the least time by the model. Raises Unfit if no one fits."""
    possible: list[Division] = [*(tensor_core_divisions(cell) if cell.factor.is_half else scalar_divisions(cell))]
    fitting = [division for division in possible if division.fits]
    if not fitting:
        kept = "registers" if cell.factor.is_half else "shared memory"
        raise Unfit(f"its matrices or its rows do not fit the {kept} of all multiprocessors")
    return min(fitting, key=lambda division: division.step_seconds)
