"""Merges adjacent inner axes even if some arguments are not contiguous over them.

A sum over the first three axes of bf16[32, 7, 7, 2048] runs over 1568 elements. If an input is [32, 1, 1, 2048], its
axes do not merge. But how a sum is split, and so its order, must depend on its sizes and not on its operands. Then a
step that is read in one program and computed in place in another gives the same bits in both::

    before    outer (2048) inner (32, 49)    x strides (1, 100352, 2048)    dy strides (1, 2048, 0)
    after     outer (2048) inner (1568)      x strides (1, 2048)            dy strides (1, 0), mixed radix (32, 49)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
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


def with_axes_apart(region: Region) -> Region:
    """The region whose inputs move by strides alone: the axes that ``merge_axes`` merged are several ones again. For
    regions that do not depend on how they were merged: those without reductions."""
    split, parts = len(region.outer), [_apart(region, axis) for axis in range(len(region.inner))]
    if all(len(sizes) == 1 for sizes in parts):
        return region

    def strides(access: Access | MixedRadix) -> tuple[int, ...]:
        found = [*access.strides[:split]]
        for stride, sizes in zip(access.strides[split:], parts):
            found += [stride * prod(sizes[n + 1 :]) for n in range(len(sizes))]
        return tuple(found)

    def apart(access: Access) -> Access:
        found = [*strides(access)]
        for own in access.mixed_radix:
            at = next(n for n, stride in enumerate(own.strides) if stride)
            first = split + sum(len(sizes) for sizes in parts[: at - split])
            for n in range(len(sizes := parts[at - split])):
                found[first + n] += _step(own, prod(sizes[n + 1 :]))
        return replace(access, strides=tuple(found), mixed_radix=())

    return replace(
        region,
        inner=tuple(size for sizes in parts for size in sizes),
        inputs=tuple(map(apart, region.inputs)),
        outputs=tuple(map(apart, region.outputs)),
        canonical_strides=(),
    )


def _apart(region: Region, axis: int) -> tuple[int, ...]:
    """The sizes of the axes that an inner axis consists of."""
    at, found = len(region.outer) + axis, {1, region.inner[axis]}
    if not region.inner[axis]:
        return (0,)
    for own in (own for access in region.inputs for own in access.mixed_radix if own.strides[at]):
        moves = [n for n, stride in enumerate(own.strides) if stride]
        assert moves == [at] and own.strides[at] == 1 and not own.offset, "an axis of the region is merged ones"
        found |= {prod(own.sizes[n:]) for n in range(len(own.sizes))}
    ends = sorted(found, reverse=True)
    assert all(a % b == 0 for a, b in pairwise(ends)), "merged axes begin and end together"
    return tuple(a // b for a, b in pairwise(ends)) or (1,)


def _step(own: MixedRadix, distance: int) -> int:
    """How far an input moves between elements of the merged axis that are so far apart."""
    inner = 1
    for size, step in zip(reversed(own.sizes), reversed(own.steps)):
        if distance < inner * size:
            return step * (distance // inner)
        inner *= size
    return 0
