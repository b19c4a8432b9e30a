"""Merges neighbouring axes of a region, so that its loops are as few and as long as its arguments allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dslc.compiler.codegen.region.ir import Access, Bits, Region, Stage


def collapsed(region: Region) -> Region:
    """The same region without axes of size 1 and with neighbouring axes merged if all arguments and the canonical
    strides allow it. Axes whose index is a value are not merged."""
    drawn = [let.place for stage in region.stages for let in stage.lets if isinstance(let, Bits)]
    arguments = [*region.inputs, *region.outputs, *drawn]
    each = [a.strides for a in arguments] + [u.strides for a in arguments for u in a.mixed_radix]
    each += [region.canonical_strides] if region.canonical_strides else []
    repeats = [a.repeat for a in arguments] + [1] * (len(each) - len(arguments))
    split = len(region.outer)
    alone = set(region.indices)
    outer = _merged(region.outer, [s[:split] for s in each], repeats, alone)
    inner = _merged(region.inner, [s[split:] for s in each], [1] * len(each), {a - split for a in alone})
    strides = iter([o + i for o, i in zip(outer.strides, inner.strides)])
    merged = [a if a.strides == (new := next(strides)) else replace(a, strides=new) for a in arguments]
    merged = [
        replace(a, mixed_radix=tuple(replace(u, strides=next(strides)) for u in a.mixed_radix)) if a.mixed_radix else a
        for a in merged
    ]
    count, first_place = len(region.inputs), len(region.inputs) + len(region.outputs)
    places = dict(zip(drawn, merged[first_place:]))
    placed = {**outer.places, **{split + k: len(outer.sizes) + v for k, v in inner.places.items()}}
    return replace(
        region,
        outer=outer.sizes,
        inner=inner.sizes,
        inputs=tuple(merged[:count]),
        outputs=tuple(merged[count:first_place]),
        stages=tuple(with_random_places(stage, places) for stage in region.stages) if drawn else region.stages,
        indices=tuple(placed[axis] for axis in region.indices),
        canonical_strides=next(strides, ()),
    )


def with_random_places(stage: Stage, places: Mapping[Access, Access]) -> Stage:
    """The stage with other places for its random bits."""
    return replace(
        stage, lets=tuple(replace(x, place=places[x.place]) if isinstance(x, Bits) else x for x in stage.lets)
    )


@dataclass(frozen=True, slots=True)
class _Merged:
    """Sizes, each argument's strides, and the new positions of the axes that are not merged."""

    sizes: tuple[int, ...]
    strides: list[tuple[int, ...]]
    places: dict[int, int]


def _merged(sizes: Sequence[int], strides: Sequence[Sequence[int]], repeats: Sequence[int], alone: set[int]) -> _Merged:
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    places: dict[int, int] = {}
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        last = axis == len(sizes) - 1
        shared = [r if last else 1 for r in repeats]
        free = axis not in alone and len(kept) - 1 not in places.values()
        if kept and free and all(f[-1] * r == size * h for f, h, r in zip(found, here, shared)):
            kept[-1] *= size
            for f, h in zip(found, here):
                f[-1] = h
            continue
        if axis in alone:
            places[axis] = len(kept)
        kept.append(size)
        for f, h in zip(found, here):
            f.append(h)
    return _Merged(tuple(kept), [tuple(f) for f in found], places)


def merged_axes(sizes: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes merged as far as one argument allows: their sizes, and the stride of each."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides):
        if found and found[-1][1] == size * stride:
            size *= found.pop()[0]
        found.append((size, stride))
    return tuple(size for size, _ in found), tuple(stride for _, stride in found)
