"""The order of work in a step of a resident kernel: what a block does in each level, and when it waits for others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.ir.graph import Node, Value


@dataclass(frozen=True, slots=True)
class Level:
    """A level does this, in this order. Products, shared values and results are numbers, in the cell's order.

    ``products``: multiplies what all blocks have written by the block's matrices. ``nodes``: each thread computes its
    elements. ``shares``: writes the values that all blocks read in a later level of this step. ``is_last``: replaces
    the carries, and writes those that all blocks read in the next step. ``waits``: begins to wait until all blocks have
    written. ``fetches``: loads the sequences of the next step. ``results``: writes these results.
    """

    products: tuple[int, ...]
    nodes: tuple[Node, ...]
    shares: tuple[int, ...]
    is_last: bool
    waits: bool
    fetches: bool
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """The levels of a step. ``shared_carries``: the numbers of the shared values that are carries, which a block writes
    before the first step and at the end of each."""

    levels: tuple[Level, ...]
    shared_carries: tuple[int, ...]

    @property
    def late_results(self) -> tuple[int, ...]:
        """The results that are written after the carries have changed."""
        return self.levels[-1].results


def step_schedule(cell: Cell) -> StepSchedule:
    """Loads of the next step and stores of results are put where the block waits anyway: loads at the last wait of the
    step, a result at the first wait after it is known."""
    last = cell.levels - 1
    shared = list(enumerate(cell.shared))
    carries = tuple(number for number, value in shared if cell.is_carry(value))
    shares = [
        tuple(n for n, value in shared if n not in carries and cell.level[value] == level) for level in range(last + 1)
    ]
    waits = [bool(shares[level] or (level == last and carries)) for level in range(last + 1)]
    fetching = max((level for level in range(last + 1) if waits[level]), default=last)
    written = [_first_wait(waits, cell.level[value]) for value in cell.graph.outputs.values()]
    levels = (
        Level(
            products=_numbers_at(cell, level, cell.products),
            nodes=tuple(node for node in cell.nodes if cell.level[node.out] == level),
            shares=shares[level],
            is_last=level == last,
            waits=waits[level],
            fetches=level == fetching,
            results=tuple(number for number, at in enumerate(written) if at == level),
        )
        for level in range(last + 1)
    )
    return StepSchedule(tuple(levels), carries)


def _numbers_at(cell: Cell, level: int, values: Iterable[Value]) -> tuple[int, ...]:
    """The numbers of the values that are computed at a level."""
    return tuple(number for number, value in enumerate(values) if cell.level[value] == level)


def _first_wait(waits: list[bool], level: int) -> int:
    """The first level from this one on after which the block waits; the last one if there is none."""
    return next((n for n in range(level, len(waits)) if waits[n]), len(waits) - 1)
