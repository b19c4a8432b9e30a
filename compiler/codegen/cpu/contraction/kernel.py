"""Contractions: matrix products and convolutions as one register-blocked kernel.

``c[batch, rows, lanes] = sum over inner of a[batch, rows, inner] * b[batch, inner, lanes]``. Each group is any number
of axes with a stride per operand. A convolution is a matrix product in this form: windows of a padded image are strides
(``a[image, y + ky, x + kx]``), so no im2col copy is needed.

A tile of the result stays in registers: some rows times some vectors along the last lane axis. For each inner index,
one element of ``a`` per row is broadcast and multiplied by the vectors of ``b``. The products of an element are added
with fused multiply-add in the order of the inner axes, in blocks of about ``k_block``. The block sums are then added,
which keeps long sums accurate. So an element's bits depend neither on tiles and tasks nor on the level. The scheme is
that of Goto and van de Geijn (2008): ``k_block`` inner indices of a panel of ``b`` stay in a near cache while the rows
of the task are processed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, divisor
from dslc.compiler.codegen.cpu.contraction.layouts import row_major
from dslc.compiler.codegen.cpu.contraction.near import ROWS as NEAR_ROWS
from dslc.compiler.codegen.cpu.contraction.shared import ContractionCode, shared
from dslc.compiler.codegen.cpu.llvm.writer import lanes_of
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

#: Rows per unit, about: the first number that gives at least ``UNITS`` units. Each is a multiple of every tile's rows.
ROWS: Final = (96, 48, 24)
UNITS: Final = 16  # units wanted, so that all threads end at about the same time
NEAR_BYTES: Final = 32 * 1024  # most bytes of a that a unit reads, so that they stay in the nearest cache
PANEL_BYTES: Final = 512 * 1024  # most bytes of b that a unit reads
NEAR_LANES: Final = 256  # fewest lanes of a unit that copies its part of a: with so many, the copy costs little
BLOCKS: Final = 8  # blocks of the sum above which a unit's width follows one block instead of all of b
BLOCK_BYTES: Final = 1024 * 1024  # most bytes of b and c that such a unit reads per block
GRAIN: Final = 16384  # fewest vector products per task, if the problem has as many


@dataclass(frozen=True)
class Contraction(SizeGeneric):
    """The kernel ``k(a, b, c)``. Sizes are at least 1; at most two axes of ``lanes``.

    Without ``panel``, b's last lane axis has stride 1. With it there is one lane axis and b is packed in panels of
    ``panel`` lanes, a multiple of a vector's: ``[lanes/panel, inner, panel]``; b's inner strides refer to that.
    ``panel_depth``: the depth of a panel if the kernel sums only a part of it (0: all of it).
    ``near``: a unit copies the elements of a block of the sum in its rows of a to the stack, tile by tile, since they
    are far apart in a. There is one axis of rows, with stride 1, and one inner axis.
    """

    dtype: DType
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    starts: tuple[int, int, int] = (0, 0, 0)
    panel: int = 0
    k_block: int = 512
    panel_depth: int = 0
    near: bool = False

    @property
    def depth(self) -> int:
        """Products per element."""
        return math.prod(x.size for x in self.inner)

    @property
    def vector(self) -> int:
        return lanes_of(self.dtype)

    @cached_property
    def row_blocks(self) -> tuple[int, ...]:
        """The extent of each row axis in a unit: whole axes from the last on, and a divisor of the first one that is
        split."""
        if self.near:
            return (min(NEAR_ROWS, self.rows[0].size),)
        first = next((i for i, rows in enumerate(ROWS) if rows * self.depth * self.dtype.itemsize <= NEAR_BYTES), 0)
        found = [self._row_blocks(rows) for rows in ROWS[first:]]
        return next((b for b in found if math.prod(self._grid(b)) >= UNITS), found[-1])

    @property
    def fewest_units(self) -> int:
        """The number of units with the most rows per unit."""
        return math.prod(self._grid(self._row_blocks(ROWS[0])))

    def _row_blocks(self, rows: int) -> tuple[int, ...]:
        blocks: list[int] = []
        left = rows
        for place, axis in enumerate(reversed(self.rows)):
            if axis.size <= left * 3 // 2:
                block = axis.size
            elif place == 0:
                block = rows
            else:
                block = divisor(axis.size, left)
            blocks.append(block)
            left = left // block if block == axis.size else 1
        return tuple(reversed(blocks))

    @cached_property
    def lane_block(self) -> int:
        """The extent of the last lane axis in a unit. Each unit reads all of its rows of a, so units are as wide as the
        cache allows. If a product of matrices has many rows and many blocks of the sum, b and c of one block must stay
        in the cache; otherwise all of b that the unit reads."""
        step = self.panel or 12 * self.vector
        if self.near:
            parts = max(1, UNITS * NEAR_ROWS // self.rows[0].size)
            return max(NEAR_LANES // step, -(-self.lanes[-1].size // (step * parts))) * step
        plain = self.panel > 0 and len(self.rows) == len(self.inner) == 1
        blocks = plain and self.depth > BLOCKS * self.k_block and self.rows[0].size >= 4 * ROWS[0]
        lane, most = (self.k_block + 2 * ROWS[0], BLOCK_BYTES) if blocks else (self.depth, PANEL_BYTES)
        return max(1, most // (self.dtype.itemsize * lane * step)) * step

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Units along the batch axes, the last lane axis, and the row axes."""
        return self._grid(self.row_blocks)

    def _grid(self, row_blocks: Sequence[int]) -> tuple[int, ...]:
        rows = (-(-axis.size // block) for axis, block in zip(self.rows, row_blocks))
        return (*(x.size for x in self.batch), -(-self.lanes[-1].size // self.lane_block), *rows)

    @cached_property
    def group(self) -> int:
        """Units per task."""
        lanes = math.prod(x.size for x in self.lanes[:-1]) * -(
            -min(self.lane_block, self.lanes[-1].size) // self.vector
        )
        return max(1, GRAIN // (math.prod(self.row_blocks) * lanes * self.depth))

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-math.prod(self.grid) // self.group), 1, 1))

    @property
    def result(self) -> tuple[Axis, ...]:
        """The axes of c, in the order of its memory."""
        axes = (*self.batch, *self.rows, *self.lanes)
        return tuple(sorted((x for x in axes if x.size > 1), key=lambda x: -x.c))

    def dense(self) -> Contraction:
        """The same kernel, whose results are next to each other from the first element of c on."""
        order = self.result
        strides = dict(zip((x.c for x in order), row_major([x.size for x in order])))
        batch, rows, lanes = (
            tuple(replace(x, c=strides.get(x.c, 0)) for x in axes) for axes in (self.batch, self.rows, self.lanes)
        )
        return replace(self, batch=batch, rows=rows, lanes=lanes, starts=(*self.starts[:2], 0))

    @cached_property
    def _shared(self) -> tuple[ContractionCode, tuple[int, ...]]:
        return shared(self)

    @property
    def code(self) -> ContractionCode:
        return self._shared[0]

    @property
    def scalar_args(self) -> ScalarArgs:
        return tuple(("i64", number) for number in self._shared[1])
