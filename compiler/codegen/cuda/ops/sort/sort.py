"""sort as GPU kernels: short lines are sorted by comparison in shared memory, longer ones by digits; and unsort."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.sort.lines import Lines, Places, turned
from dslc.compiler.codegen.cuda.ops.sort.radix_sort import radix_sorted
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_MAX_COMPARED: Final = 256  # elements of a line that are sorted by comparison
_BLOCK_THREADS: Final = 256
_MIN_PAIRS: Final = 64  # pairs that a block compares, if there are as many lines


@dataclass(frozen=True)
class SortTiles(Numbered):
    """``k(x, values, places, numbers)``: sorts lines of at most ``tile`` elements, a power of 2."""

    lines: Lines
    tile: int

    @property
    def together(self) -> int:
        """Lines per block."""
        return max(1, _MIN_PAIRS // (self.tile // 2))

    @property
    def threads(self) -> int:
        return self.together * self.tile // 2

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.lines.all // self.together), 1, 1), (self.threads, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return self.lines.numbers()

    @property
    def code(self) -> Code:
        text = self.lines.head + self.numbers.text()
        return Code("sort_tiles.cu", text + constants(THREADS=self.threads, TILE=self.tile, LINES=self.together))


@dataclass(frozen=True)
class Unsort(Numbered):
    """``k(y, index, x, numbers)``: puts each element of y at its index."""

    lines: Lines
    index: DType

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.lines.elements // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return self.lines.numbers()

    @property
    def code(self) -> Code:
        text = f"using T = {C_TYPES[self.lines.dtype]};\nusing I = {C_TYPES[self.index]};\n"
        return Code("unsort.cu", text + self.numbers.text() + constants(THREADS=_BLOCK_THREADS))


def _lines(node: Node) -> Lines:
    x, axis = node.input_types[0], int_attr(node.attrs, "axis")
    after = prod(x.ints[axis + 1 :])
    descending = "descending" in node.attrs and bool_attr(node.attrs, "descending")
    return Lines(x.dtype, x.ints[axis], after, prod(x.ints[:axis]) * after, descending)


@lowers("sort", target="cuda")
def sort(node: Node) -> list[Launch] | None:
    lines = _lines(node)
    if not lines.elements:
        return []
    if max(lines.count, lines.all) >= I32_ELEMENTS:
        return None
    return sorted_lines(lines, node.inputs, node.outputs)


def sorted_lines(lines: Lines, x: Places, found: Places, free: int = 0) -> list[Launch]:
    """Sorts ``x``: values and their indices come to ``found``; scratch memory from block ``free`` on. Long lines that
    are not contiguous are copied before, and their results after."""
    if lines.count <= _MAX_COMPARED:
        return [Launch(SortTiles(lines, max(2, 1 << (lines.count - 1).bit_length())), x, found)]
    if lines.after == 1:
        return radix_sorted(lines, x, found, free)
    before, sizes, dtypes = lines.all // lines.after, (lines.count, lines.after), (lines.dtype, DType.I32)
    source = Scratch(free, lines.elements * lines.dtype.itemsize)
    held = lines.held(free + 1)
    return [
        turned(lines.dtype, before, sizes, x[0], source),
        *radix_sorted(replace(lines, after=1), (source,), held, free + 3),
        *(turned(dtype, before, sizes[::-1], *ends) for dtype, *ends in zip(dtypes, held, found)),
    ]


@lowers("unsort", target="cuda")
def unsort(node: Node) -> list[Launch] | None:
    lines = _lines(node)
    if not lines.elements:
        return []
    if max(lines.count, lines.all) >= I32_ELEMENTS:
        return None
    return [Launch(Unsort(lines, node.input_types[1].dtype), node.inputs, node.outputs)]
