"""The four ways to map a region to blocks and threads.

- ``Flat``: no reductions. Every thread has a vector of neighbours of the flattened axes, or two in the same columns.
- ``Tiles``: an input is contiguous along another axis; tiles are transposed in shared memory.
- ``Rows``: each row is contiguous and reduced by a team (a group of threads). A row that fits stays in registers from
  its first stage to its last, so memory is read once; every stage reads a longer row again.
- ``Columns``: adjacent elements belong to different rows (e.g. a bias gradient). A thread has a vector of rows;
  ``parts`` threads share their elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described

TILE: Final = 64
BLOCK_THREADS: Final = 256  # default threads per block


@dataclass(frozen=True, slots=True)
class Flat:
    """``count`` elements. A thread has ``held`` vectors, one block of threads apart; if not ``apart``, in the same
    columns. The last ``rest`` elements are no whole vector: the first threads have one each in addition. If there is a
    ``line``, the last axis has so many elements, and a block has a piece of one line: its place along the other axes is
    the same for all of its elements."""

    count: int
    vector: int
    held: int
    apart: bool = False
    rest: int = 0
    line: int = 0

    @property
    def pieces(self) -> int:
        """Blocks of a line; without lines, all blocks."""
        return -(-(self.line or self.count - self.rest) // (BLOCK_THREADS * self.vector * self.held))

    @property
    def geometry(self) -> Geometry:
        lines = self.count // self.line if self.line else 1
        return Geometry((lines * self.pieces, 1, 1), (BLOCK_THREADS, 1, 1))


@described("Rows", "rows vector held team teams chunks")
@dataclass(frozen=True, slots=True)
class Rows:
    """``team`` threads per row, ``teams`` rows per block; a thread handles ``held`` vectors at once, ``chunks``
    times."""

    rows: int
    vector: int
    held: int
    team: int
    teams: int
    chunks: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.rows // self.teams), 1, 1), (self.team * self.teams, 1, 1))


@described("Columns", "lines line vector held width parts chunks")
@dataclass(frozen=True, slots=True)
class Columns:
    """Blocks of ``width * vector`` rows; ``parts`` threads share a vector of rows, each with ``held`` of its elements
    at once."""

    lines: int  # points of the outer axes except the last
    line: int  # rows along the last outer axis
    vector: int
    held: int
    width: int
    parts: int
    chunks: int

    @property
    def blocks(self) -> int:
        """Blocks per line."""
        return -(-self.line // (self.width * self.vector))

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines * self.blocks, 1, 1), (self.width * self.parts, 1, 1))


@dataclass(frozen=True, slots=True)
class Tiles:
    """A transpose: tiles of ``tall`` by ``wide`` elements, multiples of ``vector``, along ``axis`` and the last of the
    flattened axes. A block of ``threads`` has one tile."""

    axis: int
    sizes: tuple[int, ...]
    vector: int
    tall: int = TILE
    wide: int = TILE
    threads: int = BLOCK_THREADS

    @property
    def vectors(self) -> int:
        """Vectors of a tile."""
        return self.tall * self.wide // self.vector

    @property
    def held(self) -> int:
        """Vectors of a thread; the last ones of some threads may not exist."""
        return -(-self.vectors // self.threads)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of tiles: along the other axes, ``axis``, and the last axis."""
        along, last = self.sizes[self.axis], self.sizes[-1]
        return math.prod(self.sizes) // (along * last), -(-along // self.tall), -(-last // self.wide)

    @property
    def used(self) -> float:
        """The share of the threads' elements that exist."""
        return math.prod(self.sizes) / (math.prod(self.counts) * self.held * self.threads * self.vector)

    @property
    def geometry(self) -> Geometry:
        return Geometry((math.prod(self.counts), 1, 1), (self.threads, 1, 1))


Schedule: TypeAlias = Flat | Rows | Columns | Tiles
