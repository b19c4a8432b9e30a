"""How a resident kernel is divided: blocks, threads, and who keeps what where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product, Unfit
from dslc.compiler.codegen.device_model import A100, B200, H200
from dslc.compiler.ir.graph import Value

#: Blocks that are on a device at once, one on each multiprocessor, on any of these.
_BLOCKS: Final = min(device.multiprocessors for device in (A100, H200, B200))
_TILE: Final = 8  # columns of an instruction
_TALL: Final = 16  # rows of an instruction
_CHUNK: Final = 32  # terms that a warp takes at once
#: Warps of a block, and the registers of a thread that may hold matrices.
_SHAPES: Final = ((8, 112), (16, 48))
_FEW: Final = (1, 2, 4)  # warps, if no thread then has more than one chunk and one element
_MOST_EACH: Final = 4  # elements of a thread
_SHARED: Final = 160 << 10  # bytes
PLACES: Final = 4  # of a value that blocks exchange, a power of 2
_ALIGNED: Final = 256  # bytes
# The model of a step, for an H200. A multiprocessor reads 64 bytes a cycle from the L2 cache, all of them together 5.5
# TB/s. An instruction m16n8k16 takes a multiprocessor 2 cycles, and the next one of its chain waits for it 33 cycles
# (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture").
_CLOCK: Final = 1.7e9  # cycles a second
_PORT: Final = 64 * _CLOCK
_CACHE: Final = 5.5e12
_RATE: Final = 2  # cycles
_CHAIN: Final = 33
_TRIP: Final = 1.5e-6  # seconds from a block's last sum to the time when others have what it wrote


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
        """Threads of a block: those of the products, and a warp that clears places of the exchange."""
        return 32 * self.warps + 32

    @property
    def blocks(self) -> int:
        """Blocks of the kernel."""
        return up(self.cell.width, self.columns)

    @property
    def each(self) -> int:
        """Elements of a thread."""
        return up(self.cell.rows * self.columns, 32 * self.warps)

    @property
    def tall(self) -> int:
        """Tiles of rows."""
        return up(self.cell.rows, _TALL)

    def chunks(self, product: Product) -> int:
        """Chunks of the terms that a warp sums."""
        return up(product.terms, _CHUNK * self.warps)

    def tiles(self, product: Product) -> int:
        """Tiles of columns that a block computes."""
        return up(product.node.types[0].ints[1] // self.cell.width * self.columns, _TILE)

    def pitch(self, shared: Value) -> int:
        """Elements from row to row of a shared value, whose last ones are 0."""
        return up(shared.type.ints[1], _CHUNK * self.warps) * _CHUNK * self.warps

    @cached_property
    def registers(self) -> int:
        """Of a thread, for the matrices."""
        return sum(4 * self.chunks(p) * self.tiles(p) for p in self.cell.products.values())

    @cached_property
    def sums(self) -> list[int]:
        """Where in shared memory the sums of each product begin, and where they end, in f32 elements."""
        found = [0]
        for product in self.cell.products.values():
            found.append(found[-1] + self.warps * self.tall * _TALL * self.tiles(product) * _TILE)
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
            read = 2 * self.cell.rows * product.terms
            tiles, chunks = self.tiles(product), self.chunks(product)
            rate = self.warps * chunks * self.tall * tiles * 2 * _RATE
            seconds += max(self.blocks * read / _CACHE, read / _PORT) + max(rate, 2 * chunks * _CHAIN) / _CLOCK
        return seconds

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Where in scratch memory the places of each shared value begin, and their distance, in bytes."""
        found, at = [], _ALIGNED  # after the barrier's counter
        for value in self.cell.shared:
            size = up(2 * self.tall * _TALL * self.pitch(value), _ALIGNED) * _ALIGNED
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
    least = min(cell.width, max(up(cell.width, _BLOCKS), up(_TILE, widest)))
    rooms = [
        room
        for columns in sorted({min(cell.width, n * least) for n in (1, 2, 3, 4)})
        for room in _shapes(cell, columns)
    ]
    if not rooms:
        raise Unfit("its matrices or its rows do not fit the registers of all multiprocessors")
    return min(rooms, key=lambda room: room.step_seconds)


def _shapes(cell: Cell, columns: int) -> Iterator[Room]:
    """The divisions that fit, of blocks that own so many columns."""
    terms, elements = max(p.terms for p in cell.products.values()), cell.rows * columns
    few = [(warps, 112) for warps in _FEW if terms <= _CHUNK * warps and elements <= 32 * warps]
    for warps, registers in (*few, *_SHAPES):
        room = Room(cell, warps, columns)
        if room.registers <= registers and room.each <= _MOST_EACH and room.shared_bytes <= _SHARED:
            yield room
