"""How a resident kernel is divided: blocks, threads, and who keeps what where."""

from __future__ import annotations

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
_SHARED: Final = 96 << 10  # bytes
_ALIGNED: Final = 256  # bytes


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
    def each(self) -> int:
        """Elements of a thread."""
        return up(self.cell.rows * self.columns, self.threads)

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
        """Shared memory of a block."""
        return 4 * self.sums[-1]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Where in scratch memory the two places of each shared value begin, and their distance, in bytes."""
        found, at = [], _ALIGNED  # after the barrier's counter
        for value in self.cell.shared:
            size = up(2 * self.tall * _TALL * self.pitch(value), _ALIGNED) * _ALIGNED
            found.append((at, size))
            at += 2 * size
        return found

    @property
    def scratch_bytes(self) -> int:
        """All of the scratch memory; 0 in all of it before the kernel."""
        first, size = self.places[-1]
        return first + 2 * size


def room_for(cell: Cell) -> Room:
    """The division of a cell's kernel. Raises Unfit if its matrices do not fit."""
    widest = max(p.node.types[0].ints[1] for p in cell.products.values()) // cell.width
    columns = min(cell.width, max(up(cell.width, _BLOCKS), up(_TILE, widest)))
    terms, elements = max(p.terms for p in cell.products.values()), cell.rows * columns
    few = [(warps, 112) for warps in _FEW if terms <= _CHUNK * warps and elements <= 32 * warps]
    for warps, registers in (*few, *_SHAPES):
        room = Room(cell, warps, columns)
        if room.registers <= registers and room.each <= _MOST_EACH and room.shared_bytes <= _SHARED:
            return room
    raise Unfit("its matrices or its rows do not fit the registers of all multiprocessors")
