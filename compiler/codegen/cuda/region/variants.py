"""The variants of regions: their launch shapes.

Those of reductions have names such as ``rows=4 threads=256``, rows and threads per block. They change the schedule of
the largest reduction among a node's launches. Bits differ between variants, as the order of sums does.

Those of kernels without reductions, such as the copies of a concat, have names such as ``vectors=4``: so many vectors
per thread, as short as the arguments' alignment. They change all launches of a node that have them, and no bit. Prefix
sums, transposes by tiles, and kernels whose vectors are aligned have one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.region.kernel import SizeGenericRegion
from dslc.compiler.codegen.cuda.region.reduction.column_reduction import columns_source
from dslc.compiler.codegen.cuda.region.reduction.row_reduction import rows_source
from dslc.compiler.codegen.cuda.region.schedule import THREAD_ELEMENTS, narrow, schedule
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns, Rows
from dslc.compiler.codegen.device_model import STATIC_SHARED_BYTES
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.queries import has_scans
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described

_MOST: Final = 6  # variants of a node
_MAX_THREADS: Final = 512  # of a block: more leave a thread fewer registers than the kernels take
_SUM_BYTES: Final = 8  # of the widest sum
_Shape: TypeAlias = Rows | Columns


@described("ScheduledRegion", "region schedule")
@dataclass(frozen=True, slots=True)
class ScheduledRegion(SourceKernel):
    """The kernel of a region with a schedule other than its own."""

    region: Region
    schedule: Rows | Columns

    @property
    def geometry(self) -> Geometry:
        return self.schedule.geometry

    def source(self, name: str) -> Source:
        if isinstance(self.schedule, Rows):
            return rows_source(name, self.region, self.schedule)
        return columns_source(name, self.region, self.schedule)


def names(launches: Sequence[Launch]) -> list[str]:
    """The names of the other launch shapes of a node with these launches, those near its own first."""
    at = _largest(launches)
    if at is None:
        return list(dict.fromkeys(name for launch in launches for name in _flats(launch)))[:_MOST]
    return [_name_of(shape) for shape in _shapes(launches[at].spec)][:_MOST]


def lowered(launches: Sequence[Launch], name: str) -> list[Launch] | None:
    """The launches with the shape of this name; None if they do not have it."""
    at = _largest(launches)
    if at is None and any(name in _flats(launch) for launch in launches):
        return [_flats(launch).get(name, launch) for launch in launches]
    shapes = {} if at is None else {_name_of(shape): shape for shape in _shapes(launches[at].spec)}
    if at is None or name not in shapes:
        return None
    spec = ScheduledRegion(launches[at].spec, shapes[name])
    return [*launches[:at], launches[at].with_spec(spec), *launches[at + 1 :]]


def _flats(launch: Launch) -> dict[str, Launch]:
    """The launch with short vectors, by name; none if it has no such shape."""
    spec = launch.spec
    if not isinstance(spec, SizeGenericRegion):
        return {}
    return {f"vectors={flat.held}": launch.with_spec(replace(spec, flat=flat)) for flat in narrow(spec.region)}


def _largest(launches: Sequence[Launch]) -> int | None:
    """The place of the launch that reduces the most elements; None if none does, or if it can have only one shape."""
    regions = {i: x.spec for i, x in enumerate(launches) if isinstance(x.spec, Region)}
    reducing = {i: r for i, r in regions.items() if any(s.reduces for s in r.stages) and not has_scans(r)}
    return max(reducing, key=lambda i: (reducing[i].rows * math.prod(reducing[i].inner), -i), default=None)


def _shapes(region: Region) -> list[_Shape]:
    own = schedule(region)
    found = _rows(region, own) if isinstance(own, Rows) else _columns(region, own) if isinstance(own, Columns) else ()
    sums = sum(len(stage.reduces) for stage in region.stages)
    valid = [shape for shape in found if shape != own and _fits(shape, sums)]
    return list({_name_of(shape): shape for shape in reversed(valid)}.values())[::-1]


def _fits(shape: _Shape, sums: int) -> bool:
    """Whether a block has whole warps and few enough threads, and its partial sums fit static shared memory."""
    threads = shape.geometry.block[0]
    lanes = shape.vector if isinstance(shape, Columns) else 1
    small = threads * lanes * sums * _SUM_BYTES <= STATIC_SHARED_BYTES
    return threads % WARP == 0 and threads <= _MAX_THREADS and small


def _rows(region: Region, own: Rows) -> Iterator[Rows]:
    """More and fewer threads per row; with one warp per row or less, also more and fewer rows per block."""
    vectors, block = -(-math.prod(region.inner) // own.vector), own.team * own.teams
    for team in (own.team, own.team // 2, own.team * 2):
        if not team or (team > WARP and team % WARP):
            continue
        held = own.held if own.chunks > 1 else -(-vectors // team)
        if not 0 < held * own.vector <= THREAD_ELEMENTS:
            continue
        for threads in (block, 2 * block, block // 2):
            teams = max(1, threads // team) if team <= WARP else 1
            yield replace(own, held=held, team=team, teams=teams, chunks=-(-vectors // (held * team)))


def _columns(region: Region, own: Columns) -> Iterator[Columns]:
    """More and fewer threads share the elements of a vector of rows, or a block has half as many rows."""
    length = math.prod(region.inner)
    for width, parts in (
        (own.width, own.parts * 2), (own.width, own.parts // 2), (own.width // 2, own.parts * 2),
        (own.width // 2, own.parts), (own.width * 2, own.parts // 2),
    ):  # fmt: skip
        if width and parts and (parts < 2 * length):
            held = max(1, min(own.held, -(-length // parts)))
            yield replace(own, width=width, parts=parts, held=held, chunks=-(-length // (parts * held)))


def _name_of(shape: _Shape) -> str:
    rows = shape.teams if isinstance(shape, Rows) else shape.width * shape.vector
    return f"rows={rows} threads={shape.geometry.block[0]}"
