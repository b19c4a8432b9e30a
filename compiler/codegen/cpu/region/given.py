"""Kernels that several regions share: numbers that do not shape the code are arguments.

Layers and batch sizes of a model differ in the size of the first outer axis, in offsets, and in the strides of axes
other than that of the vectors. An offset is used once per task. A stride is used once per row, and the number of rows
may decide how the optimiser counts their addresses: both are arguments only if rows are long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cpu.region.kernel import RegionKernel
from dslc.compiler.codegen.cpu.region.numbers import GIVEN
from dslc.compiler.codegen.cpu.region.schedule import Schedule, cut
from dslc.compiler.codegen.cpu.region.tiles import TiledKernel, Tiles, tiles_of
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.target import Geometry

#: Fewest elements of a row, or of a line, from which on the computation of its address costs nothing.
_FEWEST: Final = 512


@dataclass(frozen=True)
class RegionLaunch(SizeGeneric):
    """A region on the CPU."""

    region: Region

    @cached_property
    def _schedule(self) -> Schedule:
        return cut(self.region)

    @cached_property
    def _shared(self) -> tuple[Region, tuple[int, ...]]:
        return _shared(self.region, self._schedule)

    @cached_property
    def _tiles(self) -> Tiles | None:
        return tiles_of(self.region, self._schedule)

    @property
    def code(self) -> RegionKernel | TiledKernel:
        if self._tiles is not None:
            return TiledKernel(self._shared[0], self._tiles)
        return RegionKernel(self._shared[0], self._schedule)

    @property
    def scalar_args(self) -> ScalarArgs:
        return tuple(("i64", number) for number in self._shared[1])

    @property
    def geometry(self) -> Geometry:
        return Geometry(((self._tiles or self._schedule).tasks(self.region), 1, 1))


def _shared(region: Region, schedule: Schedule) -> tuple[Region, tuple[int, ...]]:
    """The region that all with the same code share, and the numbers that it gets as arguments."""
    numbers: list[int] = []
    outer, long = region.outer, schedule.elements(region) >= _FEWEST
    axes = len(outer) - schedule.columns if long else 0
    if outer and (schedule.split or (len(outer) > 1 if schedule.columns else long)):
        numbers, outer = [outer[0]], (GIVEN, *outer[1:])
    # equal strides are one argument, so that rows of equal strides share an address; an index is itself an address
    strides = {0: 0, 1: 1}

    def given(accesses: tuple[Access, ...]) -> Iterator[Access]:
        for access in accesses:
            offset, moves = access.offset, list(access.strides)
            if offset:
                numbers.append(offset)
                offset = GIVEN + len(numbers) - 1
            for axis in range(axes):
                if moves[axis] not in strides:
                    strides[moves[axis]] = GIVEN + len(numbers)
                    numbers.append(moves[axis])
                moves[axis] = strides[moves[axis]]
            yield replace(access, offset=offset, strides=tuple(moves))

    inputs, outputs = tuple(given(region.inputs)), tuple(given(region.outputs))
    return replace(region, outer=outer, inputs=inputs, outputs=outputs), tuple(numbers)
