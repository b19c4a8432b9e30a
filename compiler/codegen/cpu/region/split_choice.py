"""Decides whether a region's rows are split into parts on the CPU, and how: by sizes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES
from dslc.compiler.codegen.cpu.region.schedule import cut
from dslc.compiler.codegen.device_model import CPU_SPLITS
from dslc.compiler.codegen.region.cut import Cut, wanted_parts
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.queries import used_values


def split_choice(region: Region) -> tuple[Region, Cut] | None:
    """The region and where it is split; None if splitting does not pay. The order of its axes stays, so that a part
    reads runs of memory as the whole does. If a stage reads an element's index, the first axis is split."""
    tasks, row = cut(region).tasks(region), math.prod(region.inner)
    lines = min(region.rows, VECTOR_BYTES // 4)  # that a task takes together
    limits = replace(CPU_SPLITS, min_elements=CPU_SPLITS.min_elements * tasks)
    parts = wanted_parts(limits, tasks, row * region.rows, row * lines)
    if parts < 2:
        return None
    counted = any(region.index in used_values(stage) for stage in region.stages)
    axis = 0 if counted else _axis(region.inner, parts)
    size = region.inner[axis]
    parts = min(parts, size)
    each, rest = divmod(size, parts)
    if rest > each:  # the last part is the smallest
        each = -(-size // parts)
        parts, rest = divmod(size, each)
    return region, Cut(axis, parts, each, rest, each, elements=True)


def _axis(sizes: Sequence[int], parts: int) -> int:
    """The first axis that has an element for each part, else the longest one."""
    longest = max(range(len(sizes)), key=lambda axis: sizes[axis])
    return next((axis for axis, size in enumerate(sizes) if size >= parts), longest)
