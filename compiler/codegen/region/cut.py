"""How the rows of a region are cut into parts, and the loops of these parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, TypeVar

from dslc.compiler.codegen.device_model import SplitLimits
from dslc.compiler.codegen.region.ir import Access, MixedRadix, Region

_Moved = TypeVar("_Moved", Access, MixedRadix)


@dataclass(frozen=True, slots=True)
class Cut:
    """Splits inner axis ``axis`` into ``parts`` of ``size``, followed by a smaller part of ``rest``.

    A part is a contiguous range of the axis. If the parts are equal, it may instead be several pieces of ``piece``
    elements, dealt out to the parts in turn. Then all tasks together read memory from its start to its end. They leave
    in the cache the data that a kernel starting at the end reads first. ``elements``: the launches that store elements
    are split, too; otherwise one launch stores them all.
    """

    axis: int
    parts: int
    size: int
    rest: int
    piece: int
    elements: bool = False

    @property
    def interleaved(self) -> bool:
        return self.piece < self.size

    @property
    def count(self) -> int:
        return self.parts + (self.rest > 0)


#: From a region that ``can_split`` to the region and its cut, possibly with other inner axes; None if splitting does
#: not pay.
Chooser: TypeAlias = Callable[[Region], tuple[Region, Cut] | None]


def wanted_parts(limits: SplitLimits, tasks: int, elements: int, length: int) -> int:
    """The largest number of parts for a reduction of ``elements`` by ``tasks``; 1 if splitting does not pay.
    ``length``: how many elements are shared out to the parts."""
    if tasks >= limits.busy or elements < limits.min_elements:
        return 1
    return max(1, min(-(-limits.wanted // tasks), length // limits.min_part))


@dataclass(frozen=True, slots=True)
class Frame:
    """The loops of a new region: all of the old one, or ``parts`` parts of its rows from number ``first``. ``place``:
    from an access of the old region to that of the new one. ``start``: the element's index where the loops begin."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    place: Callable[[Access], Access]
    canonical_strides: tuple[int, ...] = ()
    first: int = 0
    start: int = 0
    parts: int = 1


def part_frames(region: Region, cut: Cut) -> list[Frame]:
    """The loops of the parts of equal size, and those of the smaller part."""
    equal = _frame(region, cut, cut.parts, cut.size, 0)
    return [equal, _frame(region, cut, 1, cut.rest, cut.parts)] if cut.rest else [equal]


def _frame(region: Region, cut: Cut, parts: int, size: int, first: int) -> Frame:
    """The loops of ``parts`` parts of ``size`` from number ``first``."""
    at = len(region.outer) + cut.axis
    piece = cut.piece if parts > 1 else size
    inner = (*region.inner[: cut.axis], size // piece, piece, *region.inner[cut.axis + 1 :])

    def within(strides: tuple[int, ...]) -> tuple[int, ...]:
        before, stride, after = strides[:at], strides[at], strides[at + 1 :]
        own = (stride * piece * parts, stride) if cut.interleaved else (stride * piece, stride)
        return (stride * (piece if cut.interleaved else cut.size), *before, *own, *after)

    def moved(argument: _Moved) -> _Moved:
        start = argument.strides[at] * cut.size * first
        return replace(argument, strides=within(argument.strides), offset=argument.offset + start)

    def place(access: Access) -> Access:
        return replace(moved(access), mixed_radix=tuple(moved(u) for u in access.mixed_radix))

    canonical = within(region.canonical_strides) if region.canonical_strides else ()
    start = first * cut.size * prod(region.inner[1:])
    return Frame((parts, *region.outer), inner, place, canonical, first, start, parts)
