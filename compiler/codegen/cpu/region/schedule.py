"""How a region runs on the CPU: the axis of its vectors, and its tasks.

Vectors run along the last inner axis if one exists and more elements are contiguous along it than along the last outer
axis: of the inputs, and also of the outputs if nothing is combined. Otherwise they run along the last outer axis, with
one row per lane (pointwise regions, and column reductions). The rest of an axis is a shorter vector of known length, so
no scalar loops are needed.

If long columns are reduced, a task sweeps over its piece of the lines one after the other, with the partial results of
all columns in the L1 cache. So memory is read in order. The tasks of a kernel are blocks of rows, with about
``_TASK_ELEMENTS`` elements each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cpu.llvm.math import COSTLY
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES
from dslc.compiler.codegen.region.ir import Access, Let, Region, Scan
from dslc.compiler.codegen.region.queries import functions_of
from dslc.compiler.ir.described import described

_TASK_ELEMENTS: Final = 8192  # elements per task, about
_SWEEP_VECTORS: Final = 64  # vectors whose partial results a sweep keeps: 4 KiB
_MIN_SWEEP_LENGTH: Final = 32  # elements of a column from which on a sweep pays
_DIVISIONS: Final = frozenset({"floordiv", "mod"})


@described("CpuSchedule", "columns split lanes block rest swept")
@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a region. ``columns``: lanes are rows, adjacent along the last outer axis; ``rest``: of this axis
    after whole vectors; None if the kernel takes any, see ``takes_any_rest``.

    A task is ``block`` rows. With columns, it is ``block`` whole lines along the last outer axis or, if ``split``, a
    piece of one line with ``block`` rows. ``swept``: line by line.
    """

    columns: bool
    split: bool
    lanes: int
    block: int
    rest: int | None = 0
    swept: bool = False

    def elements(self, region: Region) -> int:
        """The number of elements between two changes of the index along the other outer axes: of a row, or of a line
        along the last outer axis (of a piece, if ``split``)."""
        if not self.columns:
            return math.prod(region.inner)
        last = region.outer[-1] if region.outer else 1
        return math.prod(region.inner) * (min(last, self.block) if self.split else last)

    def tasks(self, region: Region) -> int:
        """The number of tasks of a region with this schedule; 0 if it has no rows."""
        if not self.columns:
            return -(-region.rows // self.block)
        last = region.outer[-1] if region.outer else 1
        lines = region.rows // max(1, last)
        return lines * -(-last // self.block) if self.split else -(-lines // self.block)


def cut(region: Region) -> Schedule:
    """The schedule; depends only on the region. A single pointwise line is split even if it is one piece, so that lines
    of all lengths have the same schedule. The partial results of a reduction stay in registers if the length of a line
    that is one piece is known."""
    itemsize = max([4, *(a.dtype.itemsize for a in (*region.inputs, *region.outputs) if a.dtype.is_float)])
    lanes = VECTOR_BYTES // itemsize
    dense_outer = any(a.strides[len(region.outer) - 1] == 1 for a in (*region.inputs, *region.outputs) if region.outer)
    combines = any(stage.reduces or any(isinstance(let, Scan) for let in stage.lets) for stage in region.stages)
    each = region.inputs if combines else (*region.inputs, *region.outputs)
    along = _dense(region, each, -1) if region.inner else 0
    across = _dense(region, each, len(region.outer) - 1) if region.outer else 0
    columns = not region.inner or across > along or (not along and dense_outer)
    work = math.prod(region.inner)
    if not columns:
        return Schedule(False, False, lanes, max(1, _TASK_ELEMENTS // max(1, work)))
    last = region.outer[-1] if region.outer else 1
    block, swept = max(lanes, _TASK_ELEMENTS // max(1, work) // lanes * lanes), _swept(region, lanes)
    if swept:
        block = max(block, _SWEEP_VECTORS * lanes)
    pointwise = not any(stage.reduces for stage in region.stages)
    if last > block or (pointwise and len(region.outer) == 1 and last >= lanes):
        return Schedule(True, True, lanes, block, last % lanes, swept)
    return Schedule(True, False, lanes, 1 if swept else max(1, block // max(1, last)), last % lanes, swept)


def takes_any_rest(region: Region, schedule: Schedule) -> bool:
    """Whether the code for whole vectors computes the rest of a line, too: of a single pointwise line with functions
    whose code is long, so that it pays to copy the rest to a whole vector. A remainder of the index may have another
    divisor beyond the line: 0."""
    if not schedule.split or len(region.outer) != 1 or region.inner or COSTLY.isdisjoint(functions_of(region)):
        return False
    accesses = (*region.inputs, *region.outputs)
    plain = all(a.strides[0] in (0, 1) and a.repeat == 1 and not (a.bits or a.mixed_radix) for a in accesses)
    lets = all(isinstance(let, Let) for stage in region.stages for let in stage.computed)
    flags = any(stage.flags or stage.reduces for stage in region.stages)
    return plain and lets and not flags and _DIVISIONS.isdisjoint(functions_of(region))


def reduced_at(region: Region) -> int:
    """The number of the only element stage; -1 if there are several or none."""
    found = [number for number, stage in enumerate(region.stages) if stage.element]
    return found[0] if len(found) == 1 else -1


def _swept(region: Region, lanes: int) -> bool:
    """Whether each column is reduced in one stage, only row stages are around it, and both axes are long; a short
    column of elements at computed places is swept so that a line computes each place once."""
    at = reduced_at(region)
    if at < 0 or not region.outer or region.outer[-1] < 4 * lanes:
        return False
    stage = region.stages[at]
    plain = stage.reduces and not (stage.stores or stage.flags or any(isinstance(let, Scan) for let in stage.lets))
    if not plain or any(before.stores or before.flags for before in region.stages[:at]):
        return False
    if at or region.indices:
        along = len(region.outer) - 1 in region.indices
        return not along and math.prod(region.inner) > 1 and not _DIVISIONS.isdisjoint(functions_of(region))
    return math.prod(region.inner) >= _MIN_SWEEP_LENGTH


def _dense(region: Region, accesses: Sequence[Access], axis: int) -> int:
    """The number of elements of those accesses that are contiguous along an axis."""
    sizes = (*region.outer, *region.inner)
    dense = (a for a in accesses if a.strides[axis] == 1)
    return sum(math.prod(n for n, stride in zip(sizes, a.strides) if stride) for a in dense)
