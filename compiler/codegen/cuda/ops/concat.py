"""``concat``: one launch copies several tensors of equal size into the result, instead of one launch each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.writer import SourceWriter, power_of_two
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr

_BLOCK_THREADS: Final = 256
_VECTOR_BYTES: Final = 16  # bytes
_MAX_ARGUMENTS: Final = 500  # most arguments of one kernel: all devices accept 4 KB of pointers
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
        return min(_VECTOR_BYTES // self.dtype.itemsize, power_of_two(self.run, self.pitch, self.start))

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
    """One launch for adjacent inputs of one size; separate ones for large inputs and if indices need i64."""
    out, axis = node.types[0], int_attr(node.attrs, "axis")
    pitch, rows = prod(out.ints[axis:]), prod(out.ints[:axis])
    if prod(out.ints) >= 1 << 31:
        return pointwise.concat(node)
    launches, start = [], 0
    for (shape, size), same in groupby(node.inputs, lambda value: (value.type.ints, value.type.bytes)):
        values, run = list(same), prod(shape[axis:])
        most = _MAX_ARGUMENTS if 0 < size < _OWN_LAUNCH_BYTES else 1
        for at in range(0, len(values), most):
            some = values[at : at + most]
            spec = Concat(out.dtype, len(some), rows, run, pitch, start)
            alone = len(some) == 1
            launches.append(
                pointwise.copy_into(some[0], node.out, start) if alone else Launch(spec, tuple(some), node.outputs)
            )
            start += run * len(some)
    return launches
