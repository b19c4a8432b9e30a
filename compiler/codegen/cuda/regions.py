"""Regions as kernels of a GPU: their schedules' geometry, and their texts compiled by Numba-CUDA."""

from __future__ import annotations

import math

from dslc.compiler.codegen.cuda.flat import flat_source
from dslc.compiler.codegen.cuda.schedule import Columns, Flat, Rows, Tiles, schedule
from dslc.compiler.codegen.cuda.source import Source
from dslc.compiler.codegen.cuda.sweep import Sweep
from dslc.compiler.codegen.cuda.team_columns import columns_source
from dslc.compiler.codegen.cuda.team_rows import rows_source, sweep_source
from dslc.compiler.codegen.cuda.tiles import tiles_source
from dslc.compiler.codegen.cuda.units import Compiled, compiled, geometry
from dslc.compiler.codegen.region import Region
from dslc.compiler.codegen.target import Geometry


def source_of(symbol: str, spec: Region | Sweep) -> Source:
    """The text of the kernel."""
    if isinstance(spec, Sweep):
        return sweep_source(symbol, spec)
    match schedule(spec):
        case Flat() as cut:
            return flat_source(symbol, spec, cut)
        case Tiles() as cut:
            return tiles_source(symbol, spec, cut)
        case Columns() as cut:
            return columns_source(symbol, spec, cut)
        case Rows() as cut:
            return rows_source(symbol, spec, cut)


def writes(region: Region) -> bool:
    """Whether there is anything to do: no for what has no rows, and for elements of none."""
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
@compiled.register(Sweep)
def _(spec: Region | Sweep, symbol: str, architecture: str) -> Compiled:
    from dslc.compiler.toolchain.numba_cuda import ptx_of
    from dslc.compiler.toolchain.nvjitlink import cubin_of

    ptx = ptx_of(source_of(symbol, spec), architecture)
    return Compiled(ptx, cubin_of(ptx, architecture))
