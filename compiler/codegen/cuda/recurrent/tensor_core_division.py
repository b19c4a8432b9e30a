"""The division of a resident kernel whose products have 16-bit factors: tensor cores, and matrices in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import ceil_div

_TILE: Final = 8  # columns of an instruction
_TALL: Final = 16  # rows of an instruction
_CHUNK: Final = 4  # words that a warp takes at once
#: Warps of a block -> the registers of a thread that may hold matrices.
_REGISTERS: Final = {1: 112, 2: 112, 4: 112, 8: 112, 16: 48}
_SHARED: Final = 160 << 10  # bytes
_MOST_LOADS: Final = 8  # on their way at once, of a word from each of two rows
_LOAD: Final = 8  # registers of these words
#: Registers of a thread for matrices, sums and words on their way, of the 255 that it has in blocks of at most 8 warps.
#: On sm_90, NVRTC then keeps at most 64 bytes of a thread in local memory, as for divisions with 112 registers of
#: matrices (GRUs of 800 to 928, 1 to 32 rows, both directions).
_DENSE: Final = 216
_DENSE_WARPS: Final = 8
# An instruction m16n8k16 takes a multiprocessor 2 cycles, and the next one of its chain waits for it 33 cycles (Luo et
# al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture").
_RATE: Final = 2
_CHAIN: Final = 33


@dataclass(frozen=True)
class TensorCoreDivision(Division):
    """A word holds 7 elements of 16 bits."""

    word: ClassVar[int] = 7
    file: ClassVar[str] = "resident_cores.cuh"

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
    def registers(self) -> int:
        """Registers of a thread for the matrices."""
        return sum(4 * self.chunks(p) * self.tiles(p) for p in self.cell.products.values())

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
        return self.chunks(product), self.tall

    def cycles(self, product: Product) -> float:
        """Of the tensor cores: their rate, or the chain of sums."""
        tiles, chunks = self.tiles(product), self.chunks(product)
        return max(self.warps * chunks * self.tall * tiles * 2 * _RATE, 2 * chunks * _CHAIN / self.chains(product))


@dataclass(frozen=True)
class DenseDivision(TensorCoreDivision):
    """One whose matrices also take registers that fewer words on their way and fewer sums leave."""

    @property
    def fits(self) -> bool:
        others = max(map(self._while_multiplying, self.cell.products.values()))
        return self.has_few_elements and self.registers + others <= _DENSE and self.shared_bytes <= _SHARED

    def _while_multiplying(self, product: Product) -> int:
        """Registers of a thread for sums, and for words on their way."""
        items = self.tall * self.chunks(product)
        loads = ceil_div(items, ceil_div(items, _MOST_LOADS))  # as in the kernel
        return 4 * self.chains(product) * self.tall * self.tiles(product) + _LOAD * loads


def tensor_core_divisions(cell: Cell, most_blocks: int) -> Iterator[TensorCoreDivision]:
    """Divisions to choose from."""
    widest = max(p.node.types[0].ints[1] for p in cell.products.values()) // cell.width
    least, word = max(ceil_div(cell.width, most_blocks), ceil_div(_TILE, widest)), TensorCoreDivision.word
    for columns in sorted({min(cell.width, n) for n in (least, word, 2 * word, 3 * word) if n >= least}):
        for warps in _REGISTERS:
            yield TensorCoreDivision(cell, warps, columns)


def dense_divisions(cell: Cell, most_blocks: int) -> Iterator[DenseDivision]:
    """Divisions with any number of columns, for the case that no one of the others fits."""
    for columns in range(ceil_div(cell.width, most_blocks), 3 * TensorCoreDivision.word + 1):
        yield DenseDivision(cell, _DENSE_WARPS, columns)
