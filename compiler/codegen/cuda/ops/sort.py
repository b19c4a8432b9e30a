"""sort as GPU kernels: tiles sorted in shared memory, then merged in pairs until a line is one run; and unsort."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbers, constants
from dslc.compiler.codegen.cuda.ops.topk import key_of
from dslc.compiler.codegen.launch import Launch, ScalarArgs, Scratch, SizeGeneric
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_MAX_TILE: Final = 1024  # elements that a block sorts: 12 KiB of shared memory at most
_BLOCK_THREADS: Final = 256
_MIN_PAIRS: Final = 64  # pairs that a block compares, if there are as many lines

Places: TypeAlias = tuple[Value | Scratch, ...]  # of values and their indices


@dataclass(frozen=True)
class Lines:
    """Lines of ``count`` elements of a dtype: the middle axis of ``[all / after, count, after]``."""

    dtype: DType
    count: int
    after: int
    all: int
    descending: bool = False

    @property
    def elements(self) -> int:
        return self.all * self.count

    @property
    def head(self) -> str:
        """Types, and the order."""
        return f"using T = {C_TYPES[self.dtype]};\n" + key_of(self.dtype) + constants(LARGEST=int(self.descending))

    def numbers(self, **more: int) -> Numbers:
        return Numbers(COUNT=self.count, AFTER=self.after, ALL=self.all, **more)


@dataclass(frozen=True)
class SortTiles(SizeGeneric):
    """``k(x, values, places, numbers)``: sorts each tile of ``tile`` elements, a power of 2."""

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
        tiles = -(-self.lines.count // self.tile)
        return Geometry((-(-self.lines.all // self.together) * tiles, 1, 1), (self.threads, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.lines.numbers().scalar_args

    @property
    def code(self) -> Code:
        text = self.lines.head + self.lines.numbers().text()
        return Code("sort_tiles.cu", text + constants(THREADS=self.threads, TILE=self.tile, LINES=self.together))


@dataclass(frozen=True)
class SortMerge(SizeGeneric):
    """``k(x, from, values, places, numbers)``: merges runs of ``run`` sorted elements in pairs."""

    lines: Lines
    run: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.lines.elements // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.lines.numbers(RUN=self.run).scalar_args

    @property
    def code(self) -> Code:
        text = self.lines.head + self.lines.numbers(RUN=self.run).text()
        return Code("sort_merge.cu", text + constants(THREADS=_BLOCK_THREADS))


@dataclass(frozen=True)
class Unsort(SizeGeneric):
    """``k(y, index, x, numbers)``: puts each element of y at its index."""

    lines: Lines
    index: DType

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.lines.elements // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.lines.numbers().scalar_args

    @property
    def code(self) -> Code:
        text = f"using T = {C_TYPES[self.lines.dtype]};\nusing I = {C_TYPES[self.index]};\n"
        return Code("unsort.cu", text + self.lines.numbers().text() + constants(THREADS=_BLOCK_THREADS))


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
    if max(lines.count, lines.all) >= 2**31:
        return None
    held = Scratch(0, lines.elements * lines.dtype.itemsize), Scratch(1, lines.elements * DType.I32.itemsize)
    return sorted_lines(lines, node.inputs, node.outputs, held)


def sorted_lines(lines: Lines, x: Places, found: Places, swapped: Places) -> list[Launch]:
    """Sorts ``x``: values and their indices come to ``found``, with ``swapped`` of the same sizes for merges."""
    tile = min(_MAX_TILE, max(2, 1 << (lines.count - 1).bit_length()))
    merges = []
    run = tile
    while run < lines.count:
        merges.append(SortMerge(lines, run))
        run *= 2
    places = [found, swapped]  # the last launch writes to the former
    launches = [Launch(SortTiles(lines, tile), x, places[len(merges) % 2])]
    for left, merge in zip(range(len(merges), 0, -1), merges):
        launches.append(Launch(merge, places[left % 2], places[(left - 1) % 2]))
    return launches


@lowers("unsort", target="cuda")
def unsort(node: Node) -> list[Launch] | None:
    lines = _lines(node)
    if not lines.elements:
        return []
    if max(lines.count, lines.all) >= 2**31:
        return None
    return [Launch(Unsort(lines, node.input_types[1].dtype), node.inputs, node.outputs)]
