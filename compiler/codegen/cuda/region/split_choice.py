"""Decides whether a region's rows are split into parts, and how: by sizes alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import MAX_CACHED_ELEMENTS, Columns, Flat, Tiles, schedule
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.region.ir import Bits, Let, Region
from dslc.compiler.codegen.region.queries import used_values

_BUSY_BLOCKS: Final = 2 * H200.multiprocessors  # blocks that keep a large GPU busy
_BUSY_CACHED_BLOCKS: Final = 64  # the same for cached data: such blocks run no longer than a launch takes
_WANTED_BLOCKS: Final = 4 * H200.multiprocessors  # blocks after a split
_MIN_ELEMENTS: Final = 1 << 17  # elements below which more launches cost more than they save
_MAX_VECTOR: Final = 8  # most elements of a vector
_PIECE_RANGE: Final = (4, 64)  # least and most adjacent elements of columns per part
_MIN_PART: Final = {True: 16, False: 2048}  # least elements per part: of columns, of rows


@dataclass(frozen=True, slots=True)
class Cut:
    """Splits inner axis ``axis`` into ``parts`` of ``size``, followed by a smaller part of ``rest``.

    A part is a contiguous range of the axis. If the parts are equal, it may instead be several pieces of ``piece``
    elements, dealt out to the parts in turn. Then all blocks together read memory from its start to its end. They leave
    in the L2 cache the data that a kernel starting at the end reads first.
    """

    axis: int
    parts: int
    size: int
    rest: int
    piece: int

    @property
    def interleaved(self) -> bool:
        return self.piece < self.size

    @property
    def count(self) -> int:
        return self.parts + (self.rest > 0)


def best_cut(region: Region) -> Cut | None:
    """The split that gives a large GPU enough blocks, with equal parts if possible; None if splitting does not pay."""
    length = math.prod(region.inner)
    if region.rows * length < _MIN_ELEMENTS:
        return None
    whole = schedule(region)
    blocks = whole.geometry.grid[0]
    cached = isinstance(whole, Columns) and region.rows * length <= MAX_CACHED_ELEMENTS
    if isinstance(whole, (Flat, Tiles)) or blocks >= (_BUSY_CACHED_BLOCKS if cached else _BUSY_BLOCKS):
        return None
    columns = isinstance(whole, Columns)
    most = min(-(-_WANTED_BLOCKS // blocks), length // _MIN_PART[columns])
    if most < 2:
        return None
    exact = [
        Cut(axis, parts, size // parts, 0, _piece(region, axis, size // parts, columns))
        for axis, size in enumerate(region.inner)
        for parts in range(2, min(most, size) + 1)
        if size % (parts * _part_multiple(region, axis, columns)) == 0
    ]
    best = max(exact, key=lambda cut: (cut.parts, -cut.axis), default=None)
    if best is not None and 4 * best.parts >= most:
        return best
    axis = max(range(len(region.inner)), key=lambda a: (region.inner[a], -a))
    size, whole_vectors = region.inner[axis], _part_multiple(region, axis, columns)
    step = -(-size // min(most, size))
    step = -(-step // whole_vectors) * whole_vectors
    return Cut(axis, size // step, step, size % step, step) if step < size else None


def _piece(region: Region, axis: int, size: int, columns: bool) -> int:
    """Adjacent elements per part: few, but enough that a block reads long contiguous ranges."""
    if not columns:
        return 1 if axis < len(region.inner) - 1 else size
    piece = power_of_two(size, _PIECE_RANGE[1])
    return piece if piece >= _PIECE_RANGE[0] else size


def _part_multiple(region: Region, axis: int, columns: bool) -> int:
    """The size of a part must be a multiple of this: parts of rows begin at whole vectors."""
    return 1 if columns or axis < len(region.inner) - 1 else _MAX_VECTOR


def can_split(region: Region, may_write: bool) -> bool:
    """Whether no stage reads an element's index and, unless ``may_write``, no reducing stage writes elements that could
    overwrite values read later."""
    counted = region.index
    return bool(region.inner) and not region.indices and all(
        all(isinstance(let, Let | Bits) for let in stage.lets)
        and counted not in used_values(stage)
        and (may_write or not (stage.element and stage.reduces and (stage.stores or stage.flags)))
        for stage in region.stages
    )  # fmt: skip
