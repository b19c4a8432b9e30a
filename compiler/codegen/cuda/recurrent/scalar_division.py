"""The division of a resident kernel whose products are scalar sums, with matrices in shared memory: f32 and TF32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.codegen.cuda.recurrent.division import Division, Word
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import ceil_div

_WORD: Final = Word(elements=3, threads=4)
_RING: Final = 3  # items of words on their way, as in the kernel
_SHARED: Final = 227 << 10  # bytes that one block may have (CUDA C++ Programming Guide, compute capability 9.0)
_MOST_WORDS: Final = 8  # of different widths of a block
#: Warps of a block -> the registers of a thread that may hold sums, words on their way, and a chunk of the matrix: of
#: 255 or, with 16 warps, 128, those that a cell's step leaves.
_REGISTERS: Final = {1: 176, 2: 176, 4: 176, 8: 176, 16: 64}
# Cycles of a multiprocessor for an instruction of a warp: 32 sums in each of its 4 parts at once, 128 bytes from a
# cache or shared memory, an exchange of lanes with what chooses its operands. A word arrives some 270 cycles after it
# was asked for (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture").
_PARTS: Final = 4
_LOAD: Final = 4
_SWAP: Final = 2
_ARRIVAL: Final = 270


class Shape(NamedTuple):
    """How the lanes of a warp share a product: ``column_lanes`` of them take the same words, of ``batch`` rows at once,
    and multiply them by different columns."""

    column_lanes: int
    batch: int


_SHAPES: Final = [Shape(1 << i, 1 << j) for i in range(6) for j in range(4)]


@dataclass(frozen=True)
class ScalarDivision(Division):
    @property
    def word(self) -> Word:
        return _WORD

    @property
    def files(self) -> tuple[str, ...]:
        return ("resident_scalars.cuh",)

    def pitch(self, shared: Value) -> int:
        return self.row(shared)

    def chunks(self, product: Product, shape: Shape) -> int:
        """Chunks of the terms that a warp sums: a word for each lane that does not take another's."""
        return ceil_div(self.row(product.left), WARP // shape.column_lanes * self.warps)

    def columns_of_lane(self, product: Product, shape: Shape) -> int:
        """Columns of a product that a lane computes."""
        return ceil_div(self.wide(product), shape.column_lanes)

    def quads(self, product: Product, shape: Shape) -> int:
        """Elements of the matrix that a lane multiplies a chunk by, in fours."""
        return ceil_div(_WORD.elements * self.columns_of_lane(product, shape), 4)

    def turns(self, shape: Shape) -> int:
        """Batches of rows."""
        return ceil_div(self.cell.rows, shape.batch)

    def lane_sums(self, product: Product, shape: Shape) -> int:
        """Sums of a lane."""
        deep = WARP // shape.column_lanes
        return ceil_div(shape.batch * self.columns_of_lane(product, shape), deep) * deep

    def registers(self, product: Product, shape: Shape) -> int:
        """Registers of a thread while it multiplies."""
        return self.lane_sums(product, shape) + 4 * self.quads(product, shape) + 4 * _RING * shape.batch

    def cycles_of(self, product: Product, shape: Shape) -> float:
        """Modelled cycles of a product in one step: of all instructions, or those for which a warp waits for words."""
        chunks, turns = self.chunks(product, shape), self.turns(shape)
        sums = shape.batch * _WORD.elements * self.columns_of_lane(product, shape) / min(self.warps, _PARTS)
        items = self.warps * turns * chunks
        working = items * (sums + (shape.batch + self.quads(product, shape)) * _LOAD)
        working += self.warps * turns * self.lane_sums(product, shape) * _SWAP
        return max(working, turns * chunks * _ARRIVAL / (_RING - 1))

    @cached_property
    def shapes(self) -> dict[Value, Shape | None]:
        """For each product the shape that takes the fewest cycles; None if none has enough registers."""
        return {value: self._shape(product) for value, product in self.cell.products.items()}

    def _shape(self, product: Product) -> Shape | None:
        possible = [each for each in _SHAPES if self.registers(product, each) <= _REGISTERS[self.warps]]
        return min(possible, key=lambda each: self.cycles_of(product, each), default=None)

    @property
    def matrix_elements(self) -> list[int]:
        return [*accumulate(map(self._matrix_size, self.cell.products.values()), initial=0)]

    def _matrix_size(self, product: Product) -> int:
        shape = self._known(product)
        return self.warps * self.chunks(product, shape) * self.quads(product, shape) * WARP * 4

    @property
    def fits(self) -> bool:
        return self.has_few_elements and None not in self.shapes.values() and self.shared_bytes <= _SHARED

    def sums_of(self, product: Product) -> int:
        shape = self._known(product)
        wide = self.columns_of_lane(product, shape) * shape.column_lanes + 1  # as in the kernel
        return self.warps * self.turns(shape) * shape.batch * wide

    def constants(self, product: Product) -> tuple[int, ...]:
        shape = self._known(product)
        return self.chunks(product, shape), shape.column_lanes, shape.batch

    def cycles(self, product: Product) -> float:
        return self.cycles_of(product, self._known(product))

    def _known(self, product: Product) -> Shape:
        shape = self.shapes[product.node.out]
        assert shape is not None, "asked for a division that does not fit"
        return shape


def scalar_divisions(cell: Cell, most_blocks: int) -> Iterator[ScalarDivision]:
    """Divisions to choose from: as many blocks as can be, and blocks whose words are full."""
    least, word = ceil_div(cell.width, most_blocks), _WORD.elements
    full = range(word * ceil_div(least, word), word * _MOST_WORDS + 1, word)
    for columns in sorted({min(cell.width, n) for n in (least, *full)}):
        for warps in _REGISTERS:
            yield ScalarDivision(cell, warps, columns)
