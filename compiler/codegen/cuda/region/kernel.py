"""Regions as GPU kernels: their schedules' geometry, and their sources compiled by Numba-CUDA."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dslc.compiler.codegen.cuda.region.pointwise import flat_source
from dslc.compiler.codegen.cuda.region.reduction.column_reduction import columns_source
from dslc.compiler.codegen.cuda.region.reduction.row_reduction import rows_source
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns, Flat, Rows, Tiles
from dslc.compiler.codegen.cuda.region.transpose import tiles_source
from dslc.compiler.codegen.cuda.region.whole_vectors import whole_vectors
from dslc.compiler.codegen.launch import Launch, ScalarArgs, SizeGeneric
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.target import Geometry


@dataclass(frozen=True)
class SizeGenericRegion(SizeGeneric):
    """A region with the schedule ``Flat``, whose kernel gets its sizes as arguments. ``flat``: None for its own one."""

    region: Region
    flat: Flat | None = None

    @property
    def geometry(self) -> Geometry:
        return (self.flat or schedule(self.region)).geometry

    @property
    def code(self) -> Source:
        return self._source_and_args[0]

    @property
    def scalar_args(self) -> ScalarArgs:
        return self._source_and_args[1]

    @cached_property  # of this object alone: regions with the constants 0.0 and -0.0 are equal, their sources are not
    def _source_and_args(self) -> tuple[Source, ScalarArgs]:
        cut = self.flat or schedule(self.region)
        assert isinstance(cut, Flat)
        return flat_source("k", self.region, cut)


def sized(launch: Launch) -> Launch:
    """The launch with its region's sizes as kernel arguments, if the region's kernel supports that."""
    flat = isinstance(launch.spec, Region) and isinstance(schedule(launch.spec), Flat)
    return launch.with_spec(SizeGenericRegion(launch.spec, whole_vectors(launch.spec))) if flat else launch


@dataclass(frozen=True, slots=True)
class RegionKernel(SourceKernel):
    """The kernel of a region whose code contains all sizes."""

    region: Region

    @property
    def geometry(self) -> Geometry:
        return schedule(self.region).geometry

    def source(self, name: str) -> Source:
        match schedule(self.region):
            case Flat() as cut:
                return flat_source(name, self.region, cut)[0]
            case Tiles() as cut:
                return tiles_source(name, self.region, cut)
            case Columns() as cut:
                return columns_source(name, self.region, cut)
            case Rows() as cut:
                return rows_source(name, self.region, cut)


def writes(region: Region) -> bool:
    """Whether a region writes anything: false without rows, or if it has no inner elements and no row stage stores."""
    if not region.rows:
        return False
    return bool(math.prod(region.inner)) or any((s.stores or s.flags) and not s.element for s in region.stages)
