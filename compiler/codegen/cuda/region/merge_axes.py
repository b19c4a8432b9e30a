"""Merges adjacent inner axes even if some arguments are not contiguous over them.

A sum over the first three axes of bf16[32, 7, 7, 2048] runs over 1568 elements. If an input is [32, 1, 1, 2048], its
axes do not merge. But how a sum is split, and so its order, must depend on its sizes and not on its operands. Then a
step that is read in one program and computed in place in another gives the same bits in both::

    before    outer (2048) inner (32, 49)    x strides (1, 100352, 2048)    dy strides (1, 2048, 0)
    after     outer (2048) inner (1568)      x strides (1, 2048)            dy strides (1, 0), mixed radix (32, 49)
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dslc.compiler.codegen.region.collapse import merged_axes, with_random_places
from dslc.compiler.codegen.region.ir import Access, Bits, MixedRadix, Region


def merge_axes(region: Region) -> Region:
    """The region with inner axes merged if they are adjacent in its reduced tensor (``whole``)."""
    split, groups = len(region.outer), list[list[int]]()
    canonical = region.canonical_strides[split:]
    for axis, size in enumerate(region.inner):
        if groups and canonical and canonical[axis - 1] == size * canonical[axis]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) == len(region.inner):
        return region
    assert all(axis < split for axis in region.indices), "inner axes with an index value cannot be merged"

    def with_groups(access: Access) -> Access:
        strides, mixed_radix = [*access.strides[:split]], [*access.mixed_radix]
        for number, group in enumerate(groups):
            sizes, steps = merged_axes([region.inner[a] for a in group], [access.strides[split + a] for a in group])
            strides.append(steps[0] if len(steps) == 1 else 0)
            if len(steps) > 1:
                place = [0] * (split + len(groups))
                place[split + number] = 1
                mixed_radix.append(MixedRadix(tuple(place), sizes, steps))
        return replace(access, strides=tuple(strides), mixed_radix=tuple(mixed_radix))

    drawn = [let.place for stage in region.stages for let in stage.lets if isinstance(let, Bits)]
    places = {place: with_groups(place) for place in drawn}
    outputs = tuple(map(with_groups, region.outputs))
    assert not any(a.mixed_radix for a in (*outputs, *places.values())), "only inputs may be mixed-radix"
    return replace(
        region,
        inner=tuple(prod(region.inner[a] for a in group) for group in groups),
        inputs=tuple(map(with_groups, region.inputs)),
        outputs=outputs,
        stages=tuple(with_random_places(stage, places) for stage in region.stages) if drawn else region.stages,
        canonical_strides=(*region.canonical_strides[:split], *(canonical[group[-1]] for group in groups)),
    )
