"""``concat``: one launch copies several tensors into the result, instead of one launch each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES, MAX_POINTERS
from dslc.compiler.codegen.cuda.ops.copies.boxes import Boxes, Part
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.writer import SourceWriter, power_of_two
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.compound.boxes import MAX_BOXES

_BLOCK_THREADS: Final = 256
_OWN_LAUNCH_BYTES: Final = 1 << 22  # bytes from which on a tensor gets its own launch


@described("Beside", "dtype count rows run pitch start")
@dataclass(frozen=True)
class Concat(SourceKernel):
    """``count`` arguments of ``rows`` rows of ``run`` elements. Row r of the result has ``pitch`` elements and holds
    row r of argument i from its element ``start + i * run`` on."""

    dtype: DType
    count: int
    rows: int
    run: int
    pitch: int
    start: int

    @property
    def vector(self) -> int:
        """Elements per thread."""
        return min(LOAD_BYTES // self.dtype.itemsize, power_of_two(self.run, self.pitch, self.start))

    @property
    def blocks(self) -> int:
        """Blocks per argument."""
        return -(-self.rows * self.run // (self.vector * _BLOCK_THREADS))

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.blocks * self.count, 1, 1), (_BLOCK_THREADS, 1, 1))

    def source(self, name: str) -> Source:
        """The source of the kernel."""
        text = SourceWriter(name, self.count + 1, wide=False)
        number, block = text.divmod(text.here("block"), self.blocks)
        element = text.times(text.plus(text.times(block, _BLOCK_THREADS), text.here("thread")), self.vector)
        mask = text.below(element, self.rows * self.run)
        row, along = text.divmod(element, self.run)
        place = text.dot(text.plus(along, self.start), (row, number), (self.pitch, self.run))
        pointer = text.set(text.call("pointer", (0, 1, self.count, text.arguments), number))
        value = text.set(text.call("load_if", (self.dtype, self.vector), pointer, text.known(element), mask))
        text.write(text.call("store_if", (self.dtype, self.vector), f"p{self.count}", text.known(place), value, mask))
        return text.source(_BLOCK_THREADS)


@lowers("concat", target="cuda")
def concat(node: Node) -> list[Launch]:
    """One launch for adjacent small inputs; separate ones for large inputs, for two that differ and are no whole
    vectors, and if indices need i64."""
    out, axis = node.types[0], int_attr(node.attrs, "axis")
    pitch, rows = prod(out.ints[axis:]), prod(out.ints[:axis])
    if prod(out.ints) >= I32_ELEMENTS:
        return pointwise.concat(node)
    launches: list[Launch] = []
    start = 0
    for small, found in groupby(node.inputs, lambda value: value.type.bytes < _OWN_LAUNCH_BYTES):
        values = [value for value in found if value.type.bytes]
        most = MAX_BOXES if small and len({value.type.ints for value in values}) > 1 else MAX_POINTERS
        for at in range(0, len(values), most if small else 1):
            some = values[at : at + (most if small else 1)]
            runs = tuple(prod(value.type.ints[axis:]) for value in some)
            places = [*accumulate(runs, initial=start)]
            vector = min(LOAD_BYTES // out.dtype.itemsize, power_of_two(*runs, pitch, start))
            short = vector * out.dtype.itemsize < LOAD_BYTES
            if len(some) == 1 or (len({*runs}) == 2 == len(some) and short):  # copies, whose vectors are measured
                launches += [pointwise.copy_into(value, node.out, place) for value, place in zip(some, places)]
            elif len({*runs}) == 1:
                alike = Concat(out.dtype, len(some), rows, runs[0], pitch, start)
                launches.append(Launch(alike, tuple(some), node.outputs))
            else:
                parts = tuple(Part(rows * run, place, run, rows, pitch, 0) for run, place in zip(runs, places))
                launches.append(Launch(Boxes(out.dtype, out.dtype, True, vector, parts), tuple(some), node.outputs))
            start += sum(runs)
    return launches
