"""How a resident kernel is divided: blocks, threads, and who keeps what where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product, Unfit
from dslc.compiler.ir.graph import Value

#: Blocks that are on a device at once, one on each multiprocessor: as many as the smallest GPU for servers of compute
#: capability 9.0 or newer has, an H100 for PCIe (NVIDIA H100 Tensor Core GPU Architecture, 2022).
_BLOCKS: Final = 114
_TILE: Final = 8  # columns of an instruction
_TALL: Final = 16  # rows of an instruction
_WORD: Final = 7  # elements that blocks exchange at once
_CHUNK: Final = 4  # words that a warp takes at once
_PART: Final = 8  # threads that fill a word
#: Warps of a block, and the registers of a thread that may hold matrices.
_SHAPES: Final = ((1, 112), (2, 112), (4, 112), (8, 112), (16, 48))
_MOST_EACH: Final = 4  # elements of a thread
_SHARED: Final = 160 << 10  # bytes
PLACES: Final = 2  # of a value that blocks exchange
_ALIGNED: Final = 256  # bytes
# The model of a step, for an H200. A multiprocessor reads 64 bytes a cycle from the L2 cache, all of them together 5.5
# TB/s. An instruction m16n8k16 takes a multiprocessor 2 cycles, and the next one of its chain waits for it 33 cycles
# (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture").
_CLOCK: Final = 1.7e9  # cycles a second
_PORT: Final = 64 * _CLOCK
_CACHE: Final = 5.5e12
_RATE: Final = 2  # cycles
_CHAIN: Final = 33
#: Seconds from a block's last sum to the time when others have what it wrote: what two divisions of an LSTM's loop,
#: 16 x 768, took beyond the rest (benchmarks/README.md).
_TRIP: Final = 1.65e-6


def up(count: int, size: int) -> int:
    """The number of pieces of a size that hold so many."""
    return -(-count // size)


@dataclass(frozen=True)
class Room:
    """``warps`` of each block, ``columns`` of the states that it owns."""

    cell: Cell
    warps: int
    columns: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def blocks(self) -> int:
        """Blocks of the kernel."""
        return up(self.cell.width, self.columns)

    @property
    def words(self) -> int:
        """Words of 16 bytes, each with 7 elements, for the columns of a row that a block owns."""
        return up(self.columns, _WORD)

    @property
    def each(self) -> int:
        """Elements of a thread; the last thread of 8 has none."""
        return up(self.cell.rows * _PART * self.words, self.threads)

    @property
    def tall(self) -> int:
        """Tiles of rows."""
        return up(self.cell.rows, _TALL)

    def row(self, shared: Value) -> int:
        """Words of a row of a shared value."""
        return self.cell.groups(shared.type) * self.blocks * self.words

    def chunks(self, product: Product) -> int:
        """Chunks of the terms that a warp sums, of 4 words."""
        return up(self.row(product.left), _CHUNK * self.warps)

    def tiles(self, product: Product) -> int:
        """Tiles of columns that a block computes."""
        return up(product.node.types[0].ints[1] // self.cell.width * self.columns, _TILE)

    def pitch(self, shared: Value) -> int:
        """Words from row to row of a shared value."""
        return up(self.row(shared), _CHUNK * self.warps) * _CHUNK * self.warps

    @cached_property
    def registers(self) -> int:
        """Registers of a thread for the matrices."""
        return sum(4 * self.chunks(p) * self.tiles(p) for p in self.cell.products.values())

    @cached_property
    def sums(self) -> list[int]:
        """Where in shared memory the sums of each product begin, and where they end, in f32 elements."""
        found = [0]
        for product in self.cell.products.values():
            wide = (self.tiles(product) + 2) // 4 * 32 + 8  # as in the kernel
            found.append(found[-1] + self.warps * self.tall * _TALL * wide)
        return found

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the sums of two steps."""
        return 2 * 4 * self.sums[-1]

    @cached_property
    def step_seconds(self) -> float:
        """Modelled time of a step: trips between blocks, and for each product the reading of its left factor and the
        instructions of the tensor cores, whose rate or whose chain of sums is the limit."""
        seconds = self.cell.exchanges * _TRIP
        for product in self.cell.products.values():
            read = 16 * self.cell.rows * self.row(product.left)
            tiles, chunks = self.tiles(product), self.chunks(product)
            chains = 1 if self.tall * tiles > 4 else 2 if self.tall * tiles > 2 or chunks < 4 else 4  # as in the kernel
            rate = self.warps * chunks * self.tall * tiles * 2 * _RATE
            cycles = max(rate, 2 * chunks * _CHAIN / chains)
            seconds += max(self.blocks * read / _CACHE, read / _PORT) + cycles / _CLOCK
        return seconds

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Where in scratch memory the places of each shared value begin, and their distance, in bytes."""
        found, at = [], 0
        for value in self.cell.shared:
            size = up(16 * self.cell.rows * self.pitch(value), _ALIGNED) * _ALIGNED
            found.append((at, size))
            at += PLACES * size
        return found

    @property
    def scratch_bytes(self) -> int:
        """All of the scratch memory; 0 in all of it before the kernel."""
        first, size = self.places[-1]
        return first + PLACES * size


def room_for(cell: Cell) -> Room:
    """The division of a cell's kernel whose step takes the least time by the model. Raises Unfit if no one fits."""
    widest = max(p.node.types[0].ints[1] for p in cell.products.values()) // cell.width
    least = max(up(cell.width, _BLOCKS), up(_TILE, widest))
    wanted = sorted({min(cell.width, n) for n in (least, _WORD, 2 * _WORD, 3 * _WORD) if n >= least})
    rooms = [
        room
        for columns in wanted
        for warps, registers in _SHAPES
        if (room := Room(cell, warps, columns)).registers <= registers
        and room.each <= _MOST_EACH
        and room.shared_bytes <= _SHARED
    ]
    if not rooms:
        raise Unfit("its matrices or its rows do not fit the registers of all multiprocessors")
    return min(rooms, key=lambda room: room.step_seconds)
