"""Kernels that several regions share: numbers that do not shape the code are arguments.

Layers and batch sizes of a model differ in the sizes of outer axes, in offsets, and in strides. An offset is used once
per task. The size and the strides of an axis are used once for all elements of the axes inside of it: they are
arguments if these elements are many. The sizes of inner axes, the strides along a vector, and the rest of an axis
after whole vectors shape the code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cpu.kernel_spec import ARGUMENT
from dslc.compiler.codegen.cpu.region.kernel import RegionKernel
from dslc.compiler.codegen.cpu.region.schedule import Schedule, cut, takes_any_rest
from dslc.compiler.codegen.cpu.region.tiles import TiledKernel, Tiles, tiles_of
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.target import Geometry

#: Elements of f32 in the axes inside of an axis, from which on that axis may take its size and strides from arguments:
#: a stride then costs a multiplication, a size a comparison, for so many elements.
_FEWEST: Final = 48
_TILED: Final = 512  # the same for a line of tiles


@dataclass(frozen=True)
class RegionLaunch(SizeGeneric):
    """A region on the CPU."""

    region: Region

    @cached_property
    def _schedule(self) -> Schedule:
        return cut(self.region)

    @cached_property
    def _shared(self) -> tuple[RegionKernel | TiledKernel, tuple[int, ...]]:
        if self._tiles is not None:
            region, numbers = _SizeGeneric(self.region, self._schedule).tiled()
            return TiledKernel(region, self._tiles), numbers
        region, schedule, numbers = _SizeGeneric(self.region, self._schedule).shared()
        return RegionKernel(region, schedule), numbers

    @cached_property
    def _tiles(self) -> Tiles | None:
        return tiles_of(self.region, self._schedule)

    @property
    def code(self) -> RegionKernel | TiledKernel:
        return self._shared[0]

    @property
    def scalar_args(self) -> ScalarArgs:
        return tuple(("i64", number) for number in self._shared[1])

    @property
    def geometry(self) -> Geometry:
        return Geometry(((self._tiles or self._schedule).tasks(self.region), 1, 1))


class _SizeGeneric:
    """The region and the schedule that all with the same code share, and the numbers that it gets as arguments."""

    def __init__(self, region: Region, schedule: Schedule) -> None:
        self.region, self.schedule = region, schedule
        self.numbers: list[int] = []

    def shared(self) -> tuple[Region, Schedule, tuple[int, ...]]:
        """For ``RegionKernel``."""
        region, schedule = self.region, self.schedule
        outer, block, columns = [*region.outer], schedule.block, schedule.columns
        inside, fewest = self._inside(), _FEWEST * max(1, len(outer) - 1)
        for axis in range(len(outer) - columns):
            # no division by the size of the first axis, which with columns does not shape anything else
            if inside[axis] >= fewest or (axis == 0 and columns):
                outer[axis] = self._number(outer[axis])
        if columns and outer and (schedule.split or (outer[-1] >= fewest and not schedule.swept)):
            outer[-1] = self._number(outer[-1])
            if not schedule.split:
                block = self._number(block)
        sides = self._accesses([elements >= fewest for elements in inside])
        rest = None if takes_any_rest(region, schedule) else schedule.rest
        return self._with(outer, sides), replace(schedule, block=block, rest=rest), tuple(self.numbers)

    def tiled(self) -> tuple[Region, tuple[int, ...]]:
        """For ``TiledKernel``."""
        axes = len(self.region.outer) - 1 if self.region.outer[-1] >= _TILED else 0
        outer = [self._number(self.region.outer[0]), *self.region.outer[1:]]
        sides = self._accesses([axis < axes for axis in range(len(self.region.outer))])
        return self._with(outer, sides), tuple(self.numbers)

    def _inside(self) -> list[int]:
        """For each axis, the elements between two changes of its index; 0 for an axis whose index changes from vector
        to vector. With columns, vectors of the last outer axis are inside of all other outer axes."""
        region, schedule = self.region, self.schedule
        if schedule.columns:
            return [schedule.elements(region)] * (len(region.outer) - 1) + [0] * (1 + len(region.inner))
        sizes = [math.prod(region.inner[axis + 1 :]) for axis in range(len(region.inner) - 1)]
        return [math.prod(region.inner)] * len(region.outer) + sizes + [0]

    def _number(self, value: int) -> int:
        self.numbers.append(value)
        return ARGUMENT + len(self.numbers) - 1

    def _accesses(self, given: list[bool]) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """Inputs and outputs; ``given``: whether an axis's strides are arguments. Equal strides are one argument, so
        that rows of equal strides share an address; an index is itself an address."""
        strides = {0: 0, 1: 1}

        def shared(accesses: tuple[Access, ...]) -> Iterator[Access]:
            for access in accesses:
                offset, moves = access.offset and self._number(access.offset), list(access.strides)
                for axis, stride in enumerate(moves):
                    if given[axis]:
                        if stride not in strides:
                            strides[stride] = self._number(stride)
                        moves[axis] = strides[stride]
                yield replace(access, offset=offset, strides=tuple(moves))

        return tuple(shared(self.region.inputs)), tuple(shared(self.region.outputs))

    def _with(self, outer: list[int], sides: tuple[tuple[Access, ...], tuple[Access, ...]]) -> Region:
        return replace(self.region, outer=tuple(outer), inputs=sides[0], outputs=sides[1])
