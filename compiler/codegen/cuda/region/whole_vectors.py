"""Cuts a long pointwise region whose length no vector divides into whole vectors and the few elements after them.

A thread moves 16 bytes at once only if all vectors are whole. An elementwise op on bf16[2049, 2051], dense in memory,
is one axis of 4,202,499 elements::

    before    4,202,499 elements, one per thread
    after     4,202,496 elements, eight per thread; then a launch for 3 elements

The second launch costs a microsecond, so short regions stay. Each element is computed as before. Only regions that
collapse to one axis: others have rows that begin between two vectors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import Flat, flattened, schedule, vector_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Access, Let, Region
from dslc.compiler.codegen.region.queries import used_values

#: Elements from which vectors save more than a launch takes: on an H200 bf16[2049, 2051] takes 14 us one by one and
#: about 7 us in vectors.
_LEAST: Final = 1 << 20


def whole_vectors(launch: Launch) -> list[Launch]:
    """The launches of the two parts of a region without reductions; the launch alone if it is not cut."""
    region = launch.spec
    assert isinstance(region, Region)
    own = schedule(region)
    if not isinstance(own, Flat) or own.count < _LEAST:
        return [launch]
    flat, vector = flattened(region), vector_of(region)
    rest = own.count % vector
    if not rest or not _is_plain(flat):
        return [launch]
    parts = _part(flat, 0, own.count - rest), _part(flat, own.count - rest, rest)
    return [replace(launch, spec=part) for part in parts]


def _is_plain(region: Region) -> bool:
    """Whether the region is one axis of elements that do not depend on their place."""
    accesses = (*region.inputs, *region.outputs)
    if len(region.outer) != 1 or region.indices or any(a.repeat > 1 or a.bits or a.mixed_radix for a in accesses):
        return False
    if any(a.strides[0] not in (0, 1) for a in accesses) or region.index in {
        n for stage in region.stages for n in used_values(stage)
    }:
        return False
    return all(isinstance(let, Let) for stage in region.stages for let in stage.lets)


def _part(region: Region, first: int, count: int) -> Region:
    def moved(access: Access) -> Access:
        return replace(access, offset=access.offset + first * access.strides[0])

    return replace(
        region, outer=(count,), inputs=tuple(map(moved, region.inputs)), outputs=tuple(map(moved, region.outputs))
    )
