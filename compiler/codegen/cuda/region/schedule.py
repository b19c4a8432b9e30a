"""Chooses how a region is mapped to blocks and threads, one of the ways of ``thread_mapping.py``.

The choice depends only on the region, never on a machine. A vector is 16 bytes of the narrowest floats (at most 32 of
the widest ones), or fewer elements if the sizes do not divide. Vector and thread counts, and so the tree of every sum,
depend on sizes and dtypes, not on the arguments' layouts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.region.extended import ExtendedRegion
from dslc.compiler.codegen.cuda.region.merge_axes import with_axes_apart
from dslc.compiler.codegen.cuda.region.thread_mapping import BLOCK_THREADS, TILE, Columns, Flat, Rows, Schedule, Tiles
from dslc.compiler.codegen.cuda.region.tile_choice import fitting
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.codegen.region.collapse import collapsed
from dslc.compiler.codegen.region.ir import Access, Bits, Fetch, Let, Region, dense
from dslc.compiler.codegen.region.queries import dtypes_of, has_scans, used_values
from dslc.compiler.ir.index_limits import I32_ELEMENTS_AND_BLOCK
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.bits import BYTE

THREAD_ELEMENTS: Final = 32  # elements of one argument that a thread keeps in registers
DRAW_ELEMENTS: Final = 8  # elements of a thread that share one random draw
_MAX_TEAM: Final = 1024
_LONG_TEAM: Final = 512  # threads for rows that do not fit into registers
_MAX_HALF_VECTORS: Final = 12  # half-width vectors of 8 elements, above which 64 registers are too few
MAX_CACHED_ELEMENTS: Final = 1 << 20  # elements up to which a column region stays in a cache, as partial sums do
_BUSY_BLOCKS: Final = H200.multiprocessors  # blocks that keep a GPU busy
_COLUMN_ELEMENTS: Final = 16  # elements of one argument of columns that a thread keeps in registers
_MANY_BLOCKS: Final = 4 * _BUSY_BLOCKS  # blocks that leave no multiprocessor without work
_MANY_FETCHES: Final = (
    4  # elements that a result gathers: neighbouring threads then read neighbours, each for one result
)
_NEAR: Final = 8  # most elements between neighbours of a result for which a warp writes to few memory sectors
_SECTOR_THREADS: Final = 4  # threads whose vectors fill two memory sectors


@lru_cache(4096)
def schedule(region: Region) -> Schedule:
    """The schedule of a region that writes something."""
    if isinstance(region, ExtendedRegion) and region.core is not None:
        return schedule(region.core)
    if is_flat(region):
        return _tiles(region) or _flat(region)
    return _columns(region) if has_columns(region) else rows_of(region, _held(region))


def is_flat(region: Region) -> bool:
    """Whether every element can be computed on its own, including the values of its row."""
    if has_scans(region) or any(stage.reduces for stage in region.stages):
        return False
    return not region.inner or not any((s.stores or s.flags) and not s.element for s in region.stages)


def has_columns(region: Region) -> bool:
    """True if the contiguous axis of the reduced tensor is an outer axis (column reduction). Falls back to the largest
    arguments if ``canonical_strides`` are unknown."""
    split = len(region.outer)
    if not region.outer or not region.inner:
        return bool(region.outer) and not region.inner
    if region.canonical_strides:
        return region.canonical_strides[split - 1] < region.canonical_strides[-1]
    full = [a for a in (*region.inputs, *region.outputs) if a.moves(split - 1, split) and a.moves(split)]
    down = sum(a.strides[split - 1] == 1 for a in full)
    return down > sum(a.strides[-1] == 1 for a in full)


def vector_of(region: Region) -> int:
    """Elements per 16-byte vector, before sizes limit it."""
    arguments = [a for a in (*region.inputs, *region.outputs) if a.moves()]
    return max(_nominal(region), BYTE) if any(a.bits for a in arguments) else _nominal(region)


def _nominal(region: Region) -> int:
    """Like ``vector_of``, but ignores bitmasks."""
    arguments = [a for a in (*region.inputs, *region.outputs) if a.moves()]
    sizes = [a.dtype.itemsize for a in arguments if not a.bits] or [4]
    return max(16 // max(sizes), min(16 // min(sizes), 32 // max(sizes)))


def draws(region: Region) -> bool:
    """Whether the region draws random bits."""
    return any(isinstance(let, Bits) for stage in region.stages for let in stage.lets)


def needs_wide_index(region: Region) -> bool:
    """Whether an index of an element, of the region or of an argument, may exceed i32."""
    dtypes = dtypes_of(region)
    fetched = {let.index for stage in region.stages for let in stage.lets if isinstance(let, Fetch)}
    if any(dtypes[index] is not DType.I32 for index in fetched):
        return True  # the range of a computed index is unknown, unless it was computed in i32
    sizes, arguments = (*region.outer, *region.inner), (*region.inputs, *region.outputs)
    spans = [abs(a.offset) + sum(max(0, size - 1) * abs(s) for size, s in zip(sizes, a.strides)) for a in arguments]
    spans = [n + sum(math.prod(u.sizes) * max(u.steps) for u in a.mixed_radix) for n, a in zip(spans, arguments)]
    return max(math.prod(sizes), *spans, 0) >= I32_ELEMENTS_AND_BLOCK


def _flat(region: Region) -> Flat:
    count = region.rows * math.prod(region.inner)
    vector = min(_drawn(region) if draws(region) else vector_of(region), power_of_two(count))
    if sum(isinstance(let, Fetch) for stage in region.stages for let in stage.lets) >= _MANY_FETCHES:
        vector = 1
    if any(1 < abs(a.strides[-1]) <= _NEAR for a in flattened(region).outputs if a.strides):
        vector = 1  # the results alternate in memory, so neighbouring threads write neighbouring elements
    return Flat(count, vector, 2 if _columns_again(region, vector) else 1)


def narrow(region: Region) -> list[Flat]:
    """Schedules whose vectors are as short as the arguments' alignment, for a region with the schedule ``Flat`` whose
    own vectors are longer; a thread has several instead. So neighbouring threads move neighbouring bytes."""
    own, flat = _flat(region), flattened(region)
    wanted = max(own.vector, vector_of(region))
    accesses = [a for a in (*flat.inputs, *flat.outputs) if a.moves()]
    plain = all(not stage.flags and all(isinstance(let, Let) for let in stage.lets) for stage in flat.stages)
    if not plain or not flat.outer or flat.indices or any(a.bits for a in accesses):
        return []
    if flat.index in {n for stage in flat.stages for n in used_values(stage)}:
        return []
    along = [a for a in accesses if a.strides[-1]]  # others have one value for a vector
    vector = power_of_two(wanted, flat.outer[-1], *(n for a in along for n in (a.offset, *a.strides[:-1])))
    held = wanted // vector
    return [Flat(own.count, vector, n, apart=True) for n in (held, 2 * held)] if held > 1 else []


def _columns_again(region: Region, vector: int) -> bool:
    """Whether the second vector of a thread needs the same column values as its first, and these have more bytes than
    the elements, e.g. in a batchnorm with channels last. Reading them once for both saves 5 % of the time."""
    flat = flattened(region)
    accesses = [a for a in (*flat.inputs, *flat.outputs) if a.moves()]
    columns = [a for a in accesses if a.strides == (0, 1)]
    whole = all(a in columns or (a.strides == dense(flat.outer) and a.repeat == 1) for a in accesses)
    own = sum(a.dtype.itemsize for a in flat.inputs if a.moves() and a not in columns)
    if not whole or sum(a.dtype.itemsize for a in columns) <= own or any(a.offset % vector for a in accesses):
        return False
    if flat.index in {n for stage in flat.stages for n in used_values(stage)} or flat.indices:
        return False
    plain = all(not stage.flags and all(isinstance(let, Let) for let in stage.lets) for stage in flat.stages)
    block = BLOCK_THREADS * vector
    aligned = block % flat.outer[1] == 0 and flat.outer[1] % vector == 0  # a vector is in one row
    return plain and aligned and flat.rows >= 2 * block * _MANY_BLOCKS


def _drawn(region: Region) -> int:
    """Elements per thread when random numbers are needed: one Philox draw (8), or 32 bytes if larger, to amortise the
    key setup."""
    sizes = [a.dtype.itemsize for a in (*region.inputs, *region.outputs) if any(a.strides)]
    wide, last = 32 // max(sizes, default=4), flattened(region).outer[-1:]
    return wide if wide > DRAW_ELEMENTS and last and last[0] % wide == 0 else DRAW_ELEMENTS


def _tiles(region: Region) -> Tiles | None:
    """The transpose of an input that is contiguous along another axis than the last, if shared memory pays; else
    None."""
    flat = flattened(region)
    counted = any(region.index in used_values(s) or s.flags for s in region.stages)
    plain = all(isinstance(let, Let) for s in region.stages for let in s.lets)
    if len(flat.outer) < 2 or flat.indices or counted or not plain or any(a.repeat > 1 for a in flat.inputs):
        return None
    if any(a.bits for a in (*flat.inputs, *flat.outputs)):
        return None
    turned = [turned_axis(a) for a in flat.inputs]
    axes = {axis for axis in turned if axis is not None}
    if len(axes) != 1 or any(turned_axis(a) is not None for a in flat.outputs):
        return None
    [axis] = axes
    along, last = flat.outer[axis], flat.outer[-1]
    shared = sum(a.dtype.computed.itemsize for a, n in zip(flat.inputs, turned) if n is not None)
    if min(along, last) < TILE // 2 or shared * TILE * (TILE + 1) > STATIC_SHARED_BYTES:
        return None
    return fitting(Tiles(axis, flat.outer, min(vector_of(region), power_of_two(along, last))), shared)


def turned_axis(access: Access) -> int | None:
    """The axis along which an argument is contiguous, if that is not the last one."""
    if abs(access.strides[-1]) <= 1 or 1 not in access.strides:
        return None
    return access.strides.index(1)


def flattened(region: Region) -> Region:
    """A region without reductions, with its inner axes made outer ones."""
    apart = with_axes_apart(region)
    return collapsed(replace(apart, outer=(*apart.outer, *apart.inner), inner=(), canonical_strides=()))


def _held(region: Region) -> int:
    """Elements of an argument that a thread keeps in registers: half if stages share several arguments."""
    stages = [used_values(stage) for stage in region.stages if stage.element]
    again = sum(sum(n in used for used in stages) > 1 for n in range(len(region.inputs)))
    return THREAD_ELEMENTS // 2 if again > 1 else THREAD_ELEMENTS


def rows_of(region: Region, elements: int) -> Rows:
    """The schedule with rows, with at most ``elements`` elements of an argument per thread at once."""
    length = math.prod(region.inner)
    last = region.inner[-1] if region.inner else 1
    vector = min(vector_of(region), power_of_two(last)) if length else 1
    held = max(1, elements // vector)
    if has_scans(region):  # a scan needs elements in order: one warp walks along the row
        team = 1
        while team < WARP and team * vector < length:
            team *= 2
        return Rows(region.rows, vector, 1, team, _teams(team, region.rows), -(-length // (team * vector)))
    vectors = max(1, -(-length // vector))
    if vectors <= WARP * held:
        team = 1
        while team < WARP and team < vectors:
            team *= 2
        return Rows(region.rows, vector, -(-vectors // team), team, _teams(team, region.rows), 1)
    team = -(-vectors // (held * WARP)) * WARP
    wide = any(a.dtype.itemsize == 8 for a in (*region.inputs, *region.outputs))
    if team <= (_MAX_TEAM // 2 if wide else _MAX_TEAM):
        return Rows(region.rows, vector, -(-vectors // team), team, 1, 1)
    loaded = sum(a.moves(len(region.outer)) for a in region.inputs)
    held = held if loaded == 1 else held // 2 or 1
    return Rows(region.rows, vector, held, _LONG_TEAM, 1, -(-vectors // (_LONG_TEAM * held)))


def _teams(team: int, rows: int) -> int:
    """Rows per block, so that their threads fill whole warps."""
    least = max(1, WARP // team)
    most = max(1, 128 // team)
    while most > least and rows < most * 256:
        most //= 2
    return most


def _vectors(region: Region) -> int:
    """How many vectors of its rows a thread has in registers. Row values and sums are f32 and count 2. Loaded and
    stored vectors are half as wide and count 1; bitmasks need one more vector for their values."""
    split, moved = len(region.outer), _varying_accesses(region)
    used = {n for stage in region.stages if stage.element for n in used_values(stage)}
    owned = [a for n, a in enumerate(region.inputs) if n in used and a not in moved and a.moves(split - 1, split)]
    sums = max(len(stage.reduces) for stage in region.stages)
    return 2 * (len(owned) + sums) + len(moved) + sum(a.bits for a in moved)


def _varying_accesses(region: Region) -> list[Access]:
    """The arguments read or written element by element."""
    return [a for a in (*region.inputs, *region.outputs) if a.moves(len(region.outer))]


def _columns(region: Region) -> Columns:
    line, length = region.outer[-1], math.prod(region.inner)
    vector = nominal = min(_nominal(region), power_of_two(line))
    width = 1
    while width < WARP and width * nominal < line:
        width *= 2
    lines = region.rows // line
    if has_scans(region):  # no threads share a row, so bits do not depend on vectors; few rows have more threads
        while vector > 1 and region.rows < vector * _BUSY_BLOCKS * _MAX_TEAM:
            vector //= 2
        while width < BLOCK_THREADS // 2 and lines * -(-line // (2 * width * vector)) >= _MANY_BLOCKS:
            width *= 2
        return Columns(lines, line, vector, 1, width, 1, length)
    if region.rows * length <= MAX_CACHED_ELEMENTS:  # in a cache: more threads matter more than long contiguous reads
        while (
            width > _SECTOR_THREADS
            and BLOCK_THREADS // width < length
            and lines * -(-line // (width * nominal)) < _BUSY_BLOCKS
        ):
            width //= 2
    parts = BLOCK_THREADS // width
    while parts > 1 and parts * width > 2 * WARP and parts >= 2 * length:
        parts //= 2
    # ``width`` and ``parts`` decide the order of sums; they depend on sizes and dtypes alone. The rules that follow,
    # for bitmasks, random draws and register pressure, change only the number of rows per thread. The exception are
    # few elements of odd lines: with a bitmask or a draw, they keep the parts.
    bits = any(a.bits for a in (*region.inputs, *region.outputs))
    drawn = draws(region) and line % DRAW_ELEMENTS == 0
    few = length <= _COLUMN_ELEMENTS and region.rows >= _MANY_BLOCKS * BLOCK_THREADS
    if nominal == 1 and few and not bits and not drawn:  # odd lines: one thread adds all elements of a row
        width = min(BLOCK_THREADS, 1 << (line - 1).bit_length())
        return Columns(lines, line, 1, length, width, 1, 1)
    crowded = nominal == BYTE and _vectors(region) > _MAX_HALF_VECTORS
    vector = max(nominal, BYTE) if bits or drawn else nominal // 2 if crowded else nominal
    width = width * nominal // vector
    alone = nominal == BYTE and not drawn and len(_varying_accesses(region)) == 1  # leaves registers for more loads
    wanted = 1 if crowded and vector == BYTE else (2 if alone else 1) * _COLUMN_ELEMENTS // vector
    held = max(1, min(wanted, -(-length // parts)))
    return Columns(lines, line, vector, held, width, parts, -(-length // (parts * held)))
