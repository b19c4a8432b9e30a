"""Decides whether a region's rows are split into parts on a GPU, and how: by sizes alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import MAX_CACHED_ELEMENTS, schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns, Flat, Tiles
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import GPU_CACHED_SPLITS, GPU_COLUMN_SPLITS, GPU_ROW_SPLITS
from dslc.compiler.codegen.region.cut import Cut, wanted_parts
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.queries import used_values

_MAX_VECTOR: Final = 8  # most elements of a vector
#: Elements of columns from which a block takes longer than another launch: one of an H200 adds 12 columns of 8,192 rows
#: in 33 us.
_MOST_OF_BLOCK: Final = 1 << 15
_PIECE_RANGE: Final = (4, 64)  # least and most adjacent elements of columns per part


def split_choice(region: Region) -> tuple[Region, Cut] | None:
    """The split that gives a large GPU enough blocks, with equal parts if possible; None if splitting does not pay. If
    a stage reads an element's index, as for argmax, parts of the first axis are in order."""
    counted = any(region.index in used_values(stage) for stage in region.stages)
    whole = schedule(region)
    if isinstance(whole, (Flat, Tiles)):
        return None
    columns, length = isinstance(whole, Columns), math.prod(region.inner)
    elements = region.rows * length
    limits, tasks = GPU_ROW_SPLITS, whole.geometry.grid[0]
    if columns:
        limits = GPU_CACHED_SPLITS if elements <= MAX_CACHED_ELEMENTS else GPU_COLUMN_SPLITS
        limits = replace(limits, min_elements=min(limits.min_elements, tasks * _MOST_OF_BLOCK))
    most = wanted_parts(limits, tasks, elements, length)
    if most < 2:
        return None
    exact = [
        Cut(axis, parts, size // parts, 0, size // parts if counted else _piece(region, axis, size // parts, columns))
        for axis, size in enumerate(region.inner[:1] if counted else region.inner)
        for parts in range(2, min(most, size) + 1)
        if size % (parts * _part_multiple(region, axis, columns)) == 0
    ]
    best = max(exact, key=lambda cut: (cut.parts, -cut.axis), default=None)
    if best is not None and 4 * best.parts >= most:
        return region, best
    axis = 0 if counted else max(range(len(region.inner)), key=lambda a: (region.inner[a], -a))
    size, whole_vectors = region.inner[axis], _part_multiple(region, axis, columns)
    step = -(-size // min(most, size))
    step = -(-step // whole_vectors) * whole_vectors
    return (region, Cut(axis, size // step, step, size % step, step)) if step < size else None


def _piece(region: Region, axis: int, size: int, columns: bool) -> int:
    """Adjacent elements per part: few, but enough that a block reads long contiguous ranges."""
    if not columns:
        return 1 if axis < len(region.inner) - 1 else size
    piece = power_of_two(size, _PIECE_RANGE[1])
    return piece if piece >= _PIECE_RANGE[0] else size


def _part_multiple(region: Region, axis: int, columns: bool) -> int:
    """The size of a part must be a multiple of this: parts of rows begin at whole vectors."""
    return 1 if columns or axis < len(region.inner) - 1 else _MAX_VECTOR
