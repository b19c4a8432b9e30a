"""Lowers loops to a resident kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import Code
from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.recurrent.cell import Cell, cell_of
from dslc.compiler.codegen.cuda.recurrent.choose_division import best_division
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.each_element import each_element, each_element_seconds, is_of_elements
from dslc.compiler.codegen.cuda.recurrent.scalar_division import ScalarDivision
from dslc.compiler.codegen.cuda.recurrent.source import step_source
from dslc.compiler.codegen.cuda.region.kernel import sized
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, ScalarArgs, Scratch, SizeGeneric
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.bodies.scans import loops_of, scans
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import int_count, scan
from dslc.compiler.ir.types import DType

#: Most rows with which a build without a choice takes a kernel whose products are scalar sums, if the model prefers
#: it: an H200 was 1.1 to 5.8 times as fast with it at 1 to 32 rows, 0.7 to 1.05 at 64 (benchmarks/results/loops.md).
#: The model counts too little for so many words.
_MOST_SCALAR_ROWS = 32
_MOST_LOOPS: Final = 8  # of a kernel, whose parameters are pointers of each


@dataclass(frozen=True)
class Resident(SizeGeneric):
    """The kernel ``k(inputs of the loops, their results, scratch, count)``: all steps of so many ``loops`` with equal
    steps. ``text``: the step. The second index of a block says to which loop it belongs. The blocks of a loop wait for
    one another, so all of them must be on the device."""

    division: Division = field(compare=False)  # of each loop; the text says what the code does with it
    text: str
    count: int
    loops: int

    @property
    def geometry(self) -> Geometry:
        by = self.division
        return Geometry((by.blocks, self.loops, 1), (by.threads, 1, 1), by.shared_bytes)

    @cached_property
    def code(self) -> Code:
        return Code("resident.cu", self.text)

    @property
    def scalar_args(self) -> ScalarArgs:
        return (("i32", self.count),)


def resident(node: Node) -> list[Launch]:
    """The launches of a loop, or of joined ones, as one kernel: zeros for the memory that its blocks share, then the
    kernel. Raises Unfit."""
    if node.op is scan and is_of_elements(node):
        return each_element(node)
    loops = loops_of(node) if node.op is scans else [node]
    first, count = loops[0], len(loops)
    cell = cell_of(first)
    division = best_division(cell, count)
    if any(_step_elements(t.ints) >= I32_PADDED_ELEMENTS for t in (*first.input_types, *first.types)):
        raise Unfit("its tensors are too large")
    scratch = Scratch(0, count * division.scratch_bytes)
    zeros = Builder().node(OPS["full"], value=0.0, dtype=DType.F32, shape=(scratch.bytes // 4,))
    [cleared] = pointwise.filled(zeros, 0.0)
    text = step_source(cell, division, [bool(loop.attrs["reverse"]) for loop in loops])
    kernel = Resident(division, text, int_count(first), count)
    return [sized(Launch(cleared.spec, (), (scratch,))), Launch(kernel, node.inputs, (*node.outputs, scratch))]


def resident_seconds(node: Node) -> float | None:
    """Modelled time of a loop as one kernel, of those that a build may take without a choice; None for others."""
    if is_of_elements(node):
        return each_element_seconds(node)
    if why_not_resident(node) is not None:
        return None
    cell = cell_of(node)
    if isinstance(best_division(cell), ScalarDivision) and cell.rows > _MOST_SCALAR_ROWS:
        return None
    return _seconds(node, cell, 1)


def loops_at_once(node: Node, count: int) -> int:
    """How many of ``count`` loops like one that can be resident, none of which needs another's results, one kernel runs
    in the least modelled time for each; 1 for a kernel of its own for each."""
    if is_of_elements(node):
        return 1
    cell = cell_of(node)

    def of_each(loops: int) -> float:
        try:
            return _seconds(node, cell, loops) / loops
        except Unfit:
            return inf

    return min(range(1, min(count, _MOST_LOOPS) + 1), key=of_each)


def _seconds(node: Node, cell: Cell, loops: int) -> float:
    """Modelled time of a kernel that runs so many loops at once. Raises Unfit."""
    return 2 * H200.launch + int_count(node) * best_division(cell, loops).step_seconds(loops)


def why_not_resident(node: Node) -> str | None:
    """Why a loop cannot be one kernel; None if it can."""
    try:
        resident(node)
    except Unfit as why:
        return str(why)
    return None


def _step_elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape[-2:]:
        count *= size
    return count
