"""Lowers a loop to a resident kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from dslc.compiler.codegen.cuda.cuda_cpp import Code
from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.recurrent.cell import cell_of
from dslc.compiler.codegen.cuda.recurrent.choose_division import best_division
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.source import step_source
from dslc.compiler.codegen.cuda.region.kernel import sized
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, ScalarArgs, Scratch, SizeGeneric
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import int_count
from dslc.compiler.ir.types import DType

#: Most rows with which a build without a choice takes a kernel whose products have f32 factors, if the model prefers
#: it: an H200 was 1.1 to 5.8 times as fast with it at 1 to 32 rows, 0.7 to 1.05 at 64 (benchmarks/results/loops.md).
#: The model counts too little for so many words.
_MOST_ROWS_F32 = 32


@dataclass(frozen=True)
class Resident(SizeGeneric):
    """The kernel ``k(inputs of the loop, its results, scratch, count)``: all steps of a loop. ``text``: its step. Its
    blocks wait for one another, so all of them must be on the device."""

    division: Division = field(compare=False)  # the text says what the code does with it
    text: str
    count: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.division.blocks, 1, 1), (self.division.threads, 1, 1), self.division.shared_bytes)

    @cached_property
    def code(self) -> Code:
        return Code("resident.cu", self.text)

    @property
    def scalar_args(self) -> ScalarArgs:
        return (("i32", self.count),)


def resident(node: Node) -> list[Launch]:
    """The launches of a loop as one kernel: zeros for the memory that its blocks share, then the kernel. Raises
    Unfit."""
    cell = cell_of(node)
    division = best_division(cell)
    if any(size >= I32_PADDED_ELEMENTS for t in (*node.input_types, *node.types) for size in [_step_elements(t.ints)]):
        raise Unfit("its tensors are too large")
    scratch = Scratch(0, division.scratch_bytes)
    zeros = Builder().node(OPS["full"], value=0.0, dtype=DType.F32, shape=(division.scratch_bytes // 4,))
    [cleared] = pointwise.filled(zeros, 0.0)
    kernel = Resident(division, step_source(cell, division), int_count(node))
    return [sized(Launch(cleared.spec, (), (scratch,))), Launch(kernel, node.inputs, (*node.outputs, scratch))]


def resident_seconds(node: Node) -> float | None:
    """Modelled time of a loop as one kernel, of those that a build may take without a choice; None for others."""
    if why_not_resident(node) is not None:
        return None
    cell = cell_of(node)
    if not cell.factor.is_half and cell.rows > _MOST_ROWS_F32:
        return None
    return 2 * H200.launch + int_count(node) * best_division(cell).step_seconds


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
