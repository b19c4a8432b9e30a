"""The division of a resident kernel whose products run on tensor cores, with matrices in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.codegen.cuda.recurrent.division import Division, Word
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import ceil_div

_TILE: Final = 8  # columns of an instruction
_TALL: Final = 16  # rows of an instruction
_CHUNK: Final = 4  # words that a warp takes at once
#: Warps of a block -> the registers of a thread for matrices, inputs, sums and words on their way: of 255 or, with 16
#: warps, 128, those that addresses and formulas leave. On sm_90, NVRTC keeps at most 200 bytes of a thread in local
#: memory, mostly less than 50 (LSTMs, GRUs and sLSTMs of 256 to 1,024, 1 to 64 rows, in bf16 and TF32).
_REGISTERS: Final = {1: 236, 2: 236, 4: 236, 8: 236, 16: 100}
_LIGHT: Final = {1: 112, 2: 112, 4: 112, 8: 112, 16: 48}  # of matrices
_DENSE: Final = 207  # of all but inputs, for matrices of 16 bits that are not light
_SHARED: Final = 160 << 10  # bytes
_LOAD: Final = 8  # registers of words from two rows
_MOST_LOADS: Final = 8
# An instruction m16n8k16 takes a multiprocessor 2 cycles, and the next one of its chain waits for it 33 cycles. A word
# arrives some 270 cycles after it was asked for (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU
# Architecture"). m16n8k8 of TF32 has half the terms, at half the rate.
_RATE: Final = 2
_CHAIN: Final = 33
_ARRIVAL: Final = 270


class Factors(NamedTuple):
    """How tensor cores take factors of a dtype, whose words are in ``file`` of ``kernels/``. ``registers``: of a lane
    for a word's elements, of which an instruction takes two. ``unpack``: cycles of a multiprocessor until a warp has
    these registers, from words of two rows: 10 instructions for each of TF32, of half the rate of others."""

    word: Word
    file: str
    registers: int
    unpack: int


_HALF: Final = Factors(Word(elements=7, threads=8), "half_words.cuh", registers=4, unpack=0)  # m16n8k16
_TF32: Final = Factors(Word(elements=6, threads=8), "tf32_words.cuh", registers=6, unpack=10)  # m16n8k8


def factors_of(cell: Cell) -> Factors | None:
    """How tensor cores take a cell's factors; None if they do not, as f32."""
    return _HALF if cell.factor.is_half else _TF32 if cell.tf32 else None


@dataclass(frozen=True)
class TensorCoreDivision(Division):
    """``loads``: of words from two rows, so many are on their way to a thread at most."""

    factors: Factors
    loads: int

    @property
    def word(self) -> Word:
        return self.factors.word

    @property
    def files(self) -> tuple[str, ...]:
        return self.factors.file, "resident_cores.cuh"

    @property
    def tall(self) -> int:
        """Tiles of rows."""
        return ceil_div(self.cell.rows, _TALL)

    def chunks(self, product: Product) -> int:
        """Chunks of the terms that a warp sums, of 4 words."""
        return ceil_div(self.row(product.left), _CHUNK * self.warps)

    def tiles(self, product: Product) -> int:
        """Tiles of columns that a block computes."""
        return ceil_div(self.wide(product), _TILE)

    def pitch(self, shared: Value) -> int:
        return ceil_div(self.row(shared), _CHUNK * self.warps) * _CHUNK * self.warps

    @cached_property
    def matrices(self) -> int:
        """Registers of a thread for the matrices."""
        return sum(self.factors.registers * self.chunks(p) * self.tiles(p) for p in self.cell.products.values())

    @property
    def is_light(self) -> bool:
        """Whether the matrices leave a thread more than half of its registers."""
        return self.matrices <= _LIGHT[self.warps]

    @cached_property
    def busy(self) -> int:
        """Registers of a thread while it multiplies: those of the matrices, of sums and words."""
        return self.matrices + max(map(self._while_multiplying, self.cell.products.values()))

    @cached_property
    def registers(self) -> int:
        """Registers of a thread: those, and those of the inputs."""
        cell = self.cell
        return self.busy + self.each * sum(
            cell.groups(i.value.type) for i in cell.graph.inputs if i not in cell.weights
        )

    def _while_multiplying(self, product: Product) -> int:
        items = self.tall * self.chunks(product)
        loads = ceil_div(items, ceil_div(items, self.loads))  # as in the kernel
        return 4 * self.chains(product) * self.tiles(product) + _LOAD * loads

    @property
    def fits(self) -> bool:
        return self.has_few_elements and self.registers <= _REGISTERS[self.warps] and self.shared_bytes <= _SHARED

    def chains(self, product: Product) -> int:
        """Sums of an element, as in the kernel."""
        tiles = self.tall * self.tiles(product)
        return 1 if tiles > 4 else 2 if tiles > 2 or self.chunks(product) < 4 else 4

    def sums_of(self, product: Product) -> int:
        wide = (self.tiles(product) + 2) // 4 * 32 + 8  # as in the kernel
        return self.warps * self.tall * _TALL * wide

    def constants(self, product: Product) -> tuple[int, ...]:
        return self.chunks(product), self.tall, self.loads

    def arrival_cycles(self, product: Product) -> float:
        items = self.tall * self.chunks(product)
        return (ceil_div(items, self.loads) - ceil_div(items, _MOST_LOADS)) * _ARRIVAL  # of turns beyond the fewest

    def cycles(self, product: Product) -> float:
        """Of the tensor cores: their rate, or the chain of sums."""
        tiles, chunks, instructions = self.tiles(product), self.chunks(product), self.factors.registers // 2
        each = tiles * instructions * _RATE + self.factors.unpack
        return max(self.warps * chunks * self.tall * each, instructions * chunks * _CHAIN / self.chains(product))


def tensor_core_divisions(cell: Cell, factors: Factors, most_blocks: int, dense: bool) -> Sequence[TensorCoreDivision]:
    """Divisions to choose from, each with as many loads as its registers hold. Of 16 bits those that were measured:
    of few columns with light matrices, or, where none fits and ``dense``, with all words on their way at once."""
    found = _divisions(cell, factors, most_blocks)
    if factors is not _HALF:
        return found
    least, word = _least(cell, most_blocks), factors.word.elements
    light = [each for each in found if each.is_light and each.columns in (least, word, 2 * word, 3 * word)]
    full = [each for each in found if each.loads == _MOST_LOADS and each.busy <= _DENSE and each.warps == 8]
    return light or (full if dense else [])


def _divisions(cell: Cell, factors: Factors, most_blocks: int) -> list[TensorCoreDivision]:
    found: list[TensorCoreDivision] = []
    for columns in range(_least(cell, most_blocks), 3 * factors.word.elements + 1):
        for warps in _REGISTERS:
            of_loads = (TensorCoreDivision(cell, warps, columns, factors, loads) for loads in range(_MOST_LOADS, 0, -1))
            found += [each for each in of_loads if each.fits][:1]
    return found


def _least(cell: Cell, most_blocks: int) -> int:
    """The fewest columns of a block: an instruction has ``_TILE``."""
    widest = max(p.node.types[0].ints[1] for p in cell.products.values()) // cell.width
    return max(ceil_div(cell.width, most_blocks), min(cell.width, ceil_div(_TILE, widest)))
