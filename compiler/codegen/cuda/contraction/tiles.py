"""Chooses the tile of a contraction and the number of parts into which its sum is split.

Each tile of ``tile_tables.py`` has a modelled time for the problem, and the least one is taken. A problem of few
products waits for memory most of the time: its model adds up the steps of a block (``_latency_tilings``). The model of
other problems counts multiply-adds at the tile's measured rate (``_throughput_tilings``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.contraction.problem import GROUPS, Problem
from dslc.compiler.codegen.cuda.contraction.tile_tables import (
    Cores,
    LatencyTile,
    ThroughputTile,
    Tile,
    TileSet,
    tile_set,
)
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.ir.sizes import ceil_div
from dslc.compiler.ir.types import DType

_MULTIPROCESSORS: Final = H200.multiprocessors  # of one device, so that the bits do not depend on the device
_VECTOR_ELEMENTS: Final = 4  # 32-bit elements in 16 bytes
_MAX_THREAD_SUMS: Final = 32  # that fit registers in addition to four values of k per row and column
_MAX_PADDING: Final = 8  # elements after each line of a tile
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)

#: The time model of latency tiles, in microseconds, fitted together with their rows.
_BLOCK_MICROSECONDS: Final = 0.27  # per additional block of a multiprocessor
_SINGLES_FACTOR: Final = 1.7  # factor of a step if an operand is loaded element by element
_LAUNCH_MICROSECONDS: Final = 1.3  # of the launch that adds parts
_BYTES_PER_MICROSECOND: Final = 5e6  # of parts that are added
_MIN_LATENCY_PART: Final = 16  # products per part

#: The time model of throughput tiles.
_LAUNCH_SECONDS: Final = 5e-6  # of a problem's launches, and of waits in them
_MIN_THROUGHPUT_PART: Final = 128  # products per part


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile, and the number of parts of the sum."""

    tile: Tile
    split: int


@dataclass(frozen=True, slots=True)
class _Timed:
    seconds: float
    tiling: Tiling


@dataclass(frozen=True, slots=True)
class VectorLoads:
    """Whether each operand is loaded 16 bytes at a time."""

    a: bool
    b: bool


def tiling_of(problem: Problem, cores: Cores) -> Tiling:
    """The tiling with the least modelled time."""
    return tilings(problem, cores)[0]


def tilings(problem: Problem, cores: Cores) -> list[Tiling]:
    """The tilings that the model considers, the one with the least modelled time first."""
    return [timed.tiling for timed in _by_time(problem, cores)]


def seconds_of(problem: Problem, cores: Cores) -> float:
    """The least modelled time."""
    return _by_time(problem, cores)[0].seconds


def is_latency_bound(problem: Problem, cores: Cores) -> bool:
    """Whether waiting for memory dominates the problem's time."""
    return prod(map(problem.count, GROUPS)) <= tile_set(problem, cores).small


def can_tile(problem: Problem, cores: Cores, tiling: Tiling) -> bool:
    """Whether the problem's kernel has this tile, and each part of the sum has something to add."""
    tiles = tile_set(problem, cores)
    if not tiles.has(tiling.tile) or (tiles.static_shared and not _has_room(tiling.tile, problem)):
        return False
    return tiling.split == 1 or tiling.split == used_parts(problem, tiling.tile, min(tiling.split, _SPLITS[-1]))


def used_parts(problem: Problem, tile: Tile, split: int) -> int:
    """The number of parts, of ``split``, that have something to add."""
    return ceil_div(problem.count("k"), replace(problem, split=split).part(tile.depth))


def _by_time(problem: Problem, cores: Cores) -> list[_Timed]:
    tiles = tile_set(problem, cores)
    if is_latency_bound(problem, cores):
        return _latency_tilings(problem, tiles, tf32=cores == "tf32")
    return _throughput_tilings(problem, tiles.throughput, tiles.flops, tiles.alone)


def _latency_tilings(problem: Problem, tiles: TileSet, *, tf32: bool) -> list[_Timed]:
    """Every tile with every number of parts, by modelled time; of equal ones the first row, then the fewest parts."""
    k = problem.count("k")
    timed: list[tuple[float, int, int, Tile]] = []
    for number, row in enumerate(tiles.latency):
        if tiles.static_shared and not _has_room(row.tile, problem):
            continue
        # of several numbers of parts that leave the last ones empty, one is enough
        splits = {used_parts(problem, row.tile, s) for s in _SPLITS if s * _MIN_LATENCY_PART <= k} or {1}
        slowness = _step_factor(problem, row.tile, tiles, tf32=tf32)
        timed += ((_latency_microseconds(problem, row, s, slowness), number, s, row.tile) for s in splits)
    return [_Timed(1e-6 * us, Tiling(tile, split)) for us, _, split, tile in sorted(timed, key=lambda each: each[:3])]


def _step_factor(problem: Problem, tile: Tile, tiles: TileSet, *, tf32: bool) -> float:
    """By how much a step takes longer than the row says because of how operands are loaded."""
    if problem.a.windows or problem.b.windows:
        return tiles.windows
    if problem.a.dtype.is_half:
        return 1.0  # tensor cores of 16 bits always load 16 bytes at a time
    loads = vector_loads(problem, tile, tf32)
    return 1.0 if loads.a and loads.b else _SINGLES_FACTOR


def _latency_microseconds(problem: Problem, row: LatencyTile, split: int, slowness: float) -> float:
    """The steps of a block run one after the other, and other blocks of the multiprocessor share its arithmetic. More
    parts mean fewer steps, but another launch must add them."""
    steps = slowness * (replace(problem, split=split).part(row.tile.depth) // row.tile.depth)
    others = max(0.0, blocks_of(problem, row.tile) * split / _MULTIPROCESSORS - 1)  # blocks of the multiprocessor
    part_bytes = problem.c.elements * split * problem.c.dtype.computed.itemsize
    adding = _LAUNCH_MICROSECONDS + part_bytes / _BYTES_PER_MICROSECOND if split > 1 else 0.0
    return row.start + steps * row.step + others * (_BLOCK_MICROSECONDS + steps * row.shared_step) + adding


def _throughput_tilings(problem: Problem, rows: tuple[ThroughputTile, ...], flops: float, alone: float) -> list[_Timed]:
    """Every tile with its number of parts, by modelled time. ``flops``, ``alone``: see ``TileSet``."""
    timed: list[_Timed] = []
    for row in rows:
        split = _throughput_split(problem, row)
        seconds = _throughput_seconds(problem, row, split, flops, alone)
        timed.append(_Timed(seconds, Tiling(row.tile, split if split == 1 else used_parts(problem, row.tile, split))))
    return sorted(timed, key=lambda each: each.seconds)


def _throughput_split(problem: Problem, row: ThroughputTile) -> int:
    """More than 1 part only if there would be too few blocks to keep the multiprocessors busy."""
    missing = row.blocks * _MULTIPROCESSORS // blocks_of(problem, row.tile)
    return max(1, min(missing, problem.count("k") // _MIN_THROUGHPUT_PART, _SPLITS[-1]))


def _throughput_seconds(problem: Problem, row: ThroughputTile, split: int, flops: float, alone: float) -> float:
    """Blocks run in waves of ``row.blocks`` per multiprocessor. A last wave that is not full takes a part ``alone`` of
    a full wave's time in any case, and the other part in proportion to its blocks."""
    waves, last = divmod(blocks_of(problem, row.tile) * split, row.blocks * _MULTIPROCESSORS)
    waiting = row.blocks * alone + ceil_div(last, _MULTIPROCESSORS) * (1 - alone) if last else 0
    k = ceil_div(problem.count("k"), split)
    products = (waves * row.blocks + waiting) * k * row.tile.rows * row.tile.cols  # of a multiprocessor
    return _LAUNCH_SECONDS + 2 * products * _MULTIPROCESSORS / (row.rate * flops)


def vector_loads(problem: Problem, tile: Tile, tf32: bool = False) -> VectorLoads:
    """Which operands are loaded 16 bytes at a time: f32 with four neighbours in memory."""
    if not problem.a.dtype is problem.b.dtype is DType.F32:
        return VectorLoads(False, False)
    # a vector along k is four factors of the same sum, which a thread keeps in registers next to its sums
    has_registers = tf32 or tile.tall * tile.wide <= _MAX_THREAD_SUMS

    def loads_vectors(operand: Literal["a", "b"], side: Literal["m", "n"]) -> bool:
        if problem.along_k(side):
            return has_registers and problem.runs(operand, "k", _VECTOR_ELEMENTS)
        return problem.runs(operand, side, _VECTOR_ELEMENTS)

    return VectorLoads(loads_vectors("a", "m"), loads_vectors("b", "n"))


def possible_stages(tile: Tile, computed: DType) -> int:
    """The tile's stages, limited to those that fit static shared memory with factors in this dtype."""
    return min(tile.stages, _stages_with_room(tile, computed))


def _stages_with_room(tile: Tile, computed: DType) -> int:
    return STATIC_SHARED_BYTES // (tile.depth * (tile.rows + tile.cols + 2 * _MAX_PADDING) * computed.itemsize)


def _has_room(tile: Tile, problem: Problem) -> bool:
    """Whether static shared memory has room for the two stages that a kernel needs."""
    return _stages_with_room(tile, problem.a.dtype.computed) >= 2


def tiles_of(problem: Problem, tile: Tile) -> int:
    """Blocks for one z and one part."""
    return ceil_div(problem.count("m"), tile.rows) * ceil_div(problem.count("n"), tile.cols)


def blocks_of(problem: Problem, tile: Tile) -> int:
    """Blocks for one part, of all z."""
    return tiles_of(problem, tile) * problem.count("z")
