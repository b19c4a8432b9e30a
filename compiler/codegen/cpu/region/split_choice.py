"""Decides whether a region's rows are split into parts on the CPU, and how: by sizes alone."""

from __future__ import annotations

import math
from dataclasses import replace

from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES
from dslc.compiler.codegen.cpu.region.schedule import cut
from dslc.compiler.codegen.device_model import CPU_SPLITS
from dslc.compiler.codegen.region.cut import Cut, wanted_parts
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.region.queries import used_values


def split_choice(region: Region) -> tuple[Region, Cut] | None:
    """The split of the longest axis, which becomes the first one unless a stage reads an element's index; None if
    splitting does not pay."""
    tasks, row = cut(region).tasks(region), math.prod(region.inner)
    lines = min(region.rows, VECTOR_BYTES // 4)  # that a task takes together
    limits = replace(CPU_SPLITS, min_elements=CPU_SPLITS.min_elements * tasks)
    parts = wanted_parts(limits, tasks, row * region.rows, row * lines)
    if parts < 2:
        return None
    if not any(region.index in used_values(stage) for stage in region.stages):
        region = _longest_first(region)
    size = region.inner[0]
    parts = min(parts, size)
    each, rest = divmod(size, parts)
    return region, Cut(0, parts, each, rest, each, elements=True)


def _longest_first(region: Region) -> Region:
    """Moves the longest inner axis to the front."""
    split = len(region.outer)
    longest = max(range(len(region.inner)), key=lambda axis: region.inner[axis])
    order = [longest, *(a for a in range(len(region.inner)) if a != longest)]

    def turned(access: Access) -> Access:
        return replace(access, strides=access.strides[:split] + tuple(access.strides[split + a] for a in order))

    inputs, outputs = (tuple(map(turned, side)) for side in (region.inputs, region.outputs))
    return replace(region, inner=tuple(region.inner[a] for a in order), inputs=inputs, outputs=outputs)
