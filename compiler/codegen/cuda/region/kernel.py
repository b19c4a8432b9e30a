"""Regions as GPU kernels: their schedules' geometry, and their sources compiled by Numba-CUDA."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from dslc.compiler.codegen.cuda.compile import Compiled, compiled, geometry, printed
from dslc.compiler.codegen.cuda.region.column_reduction import columns_source
from dslc.compiler.codegen.cuda.region.pointwise import flat_source
from dslc.compiler.codegen.cuda.region.row_column_sweep import Sweep
from dslc.compiler.codegen.cuda.region.row_reduction import rows_source, sweep_source
from dslc.compiler.codegen.cuda.region.schedule import Columns, Flat, Rows, Tiles, schedule
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.transpose import tiles_source
from dslc.compiler.codegen.launch import Given, Launch, Shared
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.target import Geometry


@dataclass(frozen=True)
class Unreduced(Shared):
    """A region with the schedule ``Flat``, whose kernel gets its sizes as arguments."""

    region: Region

    @property
    def geometry(self) -> Geometry:
        return schedule(self.region).geometry

    @property
    def code(self) -> Source:
        return _printed(self.region)[0]

    @property
    def given(self) -> Given:
        return _printed(self.region)[1]


@lru_cache(4096)  # an artifact's programs share most regions
def _printed(region: Region) -> tuple[Source, Given]:
    cut = schedule(region)
    assert isinstance(cut, Flat)
    return flat_source("k", region, cut)


def sized(launch: Launch) -> Launch:
    """The launch with its region's sizes as kernel arguments, if the region's kernel supports that."""
    flat = isinstance(launch.spec, Region) and isinstance(schedule(launch.spec), Flat)
    return replace(launch, spec=Unreduced(launch.spec)) if flat else launch


def source_of(symbol: str, spec: Region | Sweep | Source) -> Source:
    """The source of the kernel."""
    if isinstance(spec, Source):
        return replace(spec, name=symbol, text=spec.text.replace(f"def {spec.name}(", f"def {symbol}(", 1))
    if isinstance(spec, Sweep):
        return sweep_source(symbol, spec)
    match schedule(spec):
        case Flat() as cut:
            return flat_source(symbol, spec, cut)[0]
        case Tiles() as cut:
            return tiles_source(symbol, spec, cut)
        case Columns() as cut:
            return columns_source(symbol, spec, cut)
        case Rows() as cut:
            return rows_source(symbol, spec, cut)


def writes(region: Region) -> bool:
    """Whether a region writes anything: false without rows, or if it has no inner elements and no row stage stores."""
    if not region.rows:
        return False
    return bool(math.prod(region.inner)) or any((s.stores or s.raises) and not s.element for s in region.stages)


@geometry.register
def _(spec: Region) -> Geometry:
    return schedule(spec).geometry


@geometry.register
def _(spec: Sweep) -> Geometry:
    return spec.geometry


@compiled.register(Region)
@compiled.register(Source)
@compiled.register(Sweep)
def _(spec: Region | Sweep | Source, symbol: str, architecture: str) -> Compiled:
    return printed(source_of(symbol, spec), architecture)
