"""Chooses the tile of a contraction and the number of parts into which its sum is split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.contraction.problem import GROUPS, Problem
from dslc.compiler.codegen.cuda.cuda_cpp import constants
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.ir.types import DType

_MULTIPROCESSORS: Final = H200.multiprocessors  # of one device, so that the bits do not depend on the device
_MIN_SPLIT_DEPTH: Final = 128  # products per part of a split sum
_VECTOR_ELEMENTS: Final = 4  # 32-bit elements in 16 bytes
_MAX_THREAD_SUMS: Final = 32  # that fit registers in addition to four values of k per row and column
_MAX_PADDING: Final = 8  # elements after each line of a tile
_MAX_SMALL_PRODUCTS: Final = 1 << 26  # products of a problem whose time is dominated by waiting for memory

#: A time model of small f32 problems, in microseconds, fitted to 22 of them measured on an H200.
_BLOCK_MICROSECONDS: Final = 0.27  # per additional block of a multiprocessor
_SINGLES_FACTOR: Final = 1.7  # factor of a step if an operand is loaded element by element
_WINDOWS_FACTOR: Final = 2.9  # factor of a step if addresses in windows are computed per element
_LAUNCH_MICROSECONDS: Final = 1.3  # of the launch that adds parts
_BANDWIDTH: Final = 5e6  # bytes of parts per microsecond
#: Operations per second of the first tile of large problems; measured with the shares below, but 16 bits, which are
#: 0.4 of the peak.
_RATES: Final = {"16 bits": 0.4 * H200.matrix16, "tf32": 100e12, None: 30e12}
#: What a block waits in any case, of the time of a full multiprocessor; not measured in 16 bits.
_ALONE: Final = {"16 bits": 1.0, "tf32": 1 / 3, None: 1 / 3}
_START: Final = 5e-6  # seconds of a large problem's launches, and of those who wait in them
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
_MIN_PART: Final = 16  # products per part


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the result that a block computes: rows x columns. A thread (a warp on tensor cores) computes tall x
    wide of it, in steps of ``depth``. ``stages`` steps are in shared memory at a time; with one stage, the next step
    goes through registers. ``slices`` groups of threads share the depth of a step (f32 and wider)."""

    rows: int
    cols: int
    tall: int
    wide: int
    depth: int
    stages: int = 2
    slices: int = 1

    @property
    def parts(self) -> int:
        """Threads of the block, or warps on tensor cores."""
        return self.rows // self.tall * (self.cols // self.wide) * self.slices

    def text(self) -> str:
        return constants(ROWS=self.rows, COLS=self.cols, TALL=self.tall, WIDE=self.wide, STAGES=self.stages)


#: Tiles, the rate that each reaches by that of the first one, and with how many blocks of a multiprocessor. Small tiles
#: read shared memory more often, and wait for it less with many blocks. In f32 and TF32 measured on an H200, with 47
#: gradients for weights and three numbers of parts each ("Weight gradients" in ``benchmarks/results/ops.md``).
_TILES: Final = (
    (Tile(128, 128, 8, 8, 8), 1.0, 2),
    (Tile(64, 128, 8, 8, 8), 0.72, 2),
    (Tile(64, 64, 4, 8, 16), 0.83, 4),
    (Tile(32, 64, 4, 4, 16), 0.6, 4),
    (Tile(16, 128, 4, 4, 16), 0.42, 4),
    (Tile(32, 32, 4, 4, 16), 0.55, 8),
    (Tile(32, 32, 4, 4, 32), 0.55, 8),
)
#: Tiles of small problems, with microseconds of a block without steps, of a step, and of each step of another block on
#: the same multiprocessor.
_SMALL_TILES: Final = (
    (Tile(64, 64, 4, 8, 16, 3), 2.98, 0.50, 0.33),
    (Tile(32, 64, 4, 4, 32, 3), 1.71, 0.65, 0.59),
    (Tile(32, 64, 4, 4, 16, 4), 1.66, 0.38, 0.20),
    (Tile(32, 32, 4, 4, 16, 4), 1.52, 0.29, 0.07),
    (Tile(16, 64, 4, 4, 16, 3, 2), 2.03, 0.26, 0.12),
    (Tile(16, 32, 4, 4, 16, 4), 1.25, 0.34, 0.04),
    (Tile(16, 32, 2, 4, 32, 3), 1.39, 0.38, 0.15),
    (Tile(16, 16, 4, 4, 32, 4, 8), 1.65, 0.17, 0.06),
)
_MMA_TILES: Final = (
    (Tile(128, 256, 64, 64, 64, 4), 1.0, 1),
    (Tile(128, 128, 64, 32, 64, 3), 0.85, 2),
    (Tile(128, 64, 64, 32, 64, 3), 0.6, 2),
    (Tile(64, 64, 32, 32, 64, 4), 0.5, 2),
    (Tile(128, 32, 32, 32, 64, 4), 0.35, 2),
    (Tile(128, 16, 32, 16, 64, 4), 0.2, 2),
)
_TF32_TILES: Final = (
    (Tile(128, 128, 32, 64, 16, 2), 1.0, 2),
    (Tile(64, 128, 32, 64, 16, 3), 0.78, 4),
    (Tile(64, 64, 32, 32, 32, 2), 0.76, 4),
    (Tile(128, 32, 32, 32, 16, 3), 0.76, 4),
    (Tile(128, 16, 32, 16, 16, 3), 0.5, 4),
)
_SMALL_TF32_TILES: Final = (
    (Tile(64, 64, 32, 32, 32, 2), 2.78, 0.54, 0.58),
    (Tile(32, 32, 16, 16, 16, 4), 1.67, 0.17, 0.06),
    (Tile(32, 32, 32, 16, 32, 4), 1.44, 0.35, 0.22),
    (Tile(32, 16, 16, 16, 64, 2), 1.51, 0.48, 0.21),
    (Tile(16, 64, 16, 16, 32, 4, 2), 1.84, 0.30, 0.32),
    (Tile(16, 64, 16, 16, 8, 4), 1.54, 0.15, 0.06),
    (Tile(16, 32, 16, 16, 32, 4, 2), 1.71, 0.18, 0.14),
    (Tile(16, 16, 16, 16, 64, 4, 8), 1.64, 0.22, 0.16),
)
Row = tuple[Tile, float, int]
#: On tensor cores, for factors of this kind; None without them.
Cores: TypeAlias = Literal["16 bits", "tf32"] | None


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile, and the number of parts of the sum."""

    tile: Tile
    split: int


def tiling_of(problem: Problem, cores: Cores) -> Tiling:
    """The tiling with the least modelled time."""
    return tilings(problem, cores)[0]


def tilings(problem: Problem, cores: Cores) -> list[Tiling]:
    """The tilings that the model considers, the one with the least modelled time first."""
    return [tiling for _, tiling in _timed(problem, cores)]


def seconds_of(problem: Problem, cores: Cores) -> float:
    """The least modelled time."""
    return _timed(problem, cores)[0][0]


def _timed(problem: Problem, cores: Cores) -> list[tuple[float, Tiling]]:
    if cores != "16 bits" and is_latency_bound(problem):
        return _quickest(problem, cores == "tf32")
    rows = _MMA_TILES if cores == "16 bits" else _TF32_TILES if cores == "tf32" else _large(problem)
    return _tiled(problem, rows, _RATES[cores], _ALONE[cores])


def is_latency_bound(problem: Problem) -> bool:
    """Whether waiting for memory dominates the problem's time."""
    return prod(map(problem.count, GROUPS)) <= _MAX_SMALL_PRODUCTS


def _large(problem: Problem) -> Sequence[Row]:
    """The tiles of large problems without tensor cores: f64 takes twice the shared memory and registers."""
    return _TILES[2:] if problem.a.dtype is DType.F64 else _TILES


def can_tile(problem: Problem, cores: Cores, tiling: Tiling) -> bool:
    """Whether the problem's kernel has this tile, and each part of the sum has something to add."""
    small = _SMALL_TF32_TILES if cores == "tf32" else _SMALL_TILES
    tables = [_MMA_TILES] if cores == "16 bits" else [_TF32_TILES if cores == "tf32" else _large(problem), small]
    known = any(tiling.tile == row[0] for table in tables for row in table)
    if not known or (cores != "16 bits" and _room(tiling.tile, problem.a.dtype.computed) < 2):
        return False
    return tiling.split == 1 or tiling.split == used_parts(problem, tiling.tile, min(tiling.split, _SPLITS[-1]))


def used_parts(problem: Problem, tile: Tile, split: int) -> int:
    """The number of parts, of ``split``, that have something to add."""
    return up(problem.count("k"), replace(problem, split=split).part(tile.depth))


def _quickest(problem: Problem, tf32: bool) -> list[tuple[float, Tiling]]:
    """The tiles and the numbers of parts by their modelled seconds.

    The steps of a block run one after the other, and other blocks of the multiprocessor share its arithmetic. More
    parts mean fewer steps, but another launch must add them.
    """
    m, n, k, z = (problem.count(g) for g in ("m", "n", "k", "z"))
    windows = problem.a.windows or problem.b.windows

    def time(tile: Tile, start: float, step: float, resident: float, split: int) -> float:
        slower = _WINDOWS_FACTOR if windows else 1.0 if all(wholes(problem, tile, tf32)) else _SINGLES_FACTOR
        steps = slower * (replace(problem, split=split).part(tile.depth) // tile.depth)
        more = max(0.0, up(m, tile.rows) * up(n, tile.cols) * z * split / _MULTIPROCESSORS - 1)
        adding = _LAUNCH_MICROSECONDS + problem.c.elements * split * problem.c.dtype.computed.itemsize / _BANDWIDTH
        return start + steps * step + more * (_BLOCK_MICROSECONDS + steps * resident) + (adding if split > 1 else 0.0)

    def divided(tile: Tile) -> set[int]:
        """Numbers of parts for which the last part is not empty."""
        return {used_parts(problem, tile, s) for s in _SPLITS if s * _MIN_PART <= k} or {1}

    timed = (
        (time(*row, split), i, split, row[0])
        for i, row in enumerate(_SMALL_TF32_TILES if tf32 else _SMALL_TILES)
        if _room(row[0], problem.a.dtype.computed) > 1
        for split in divided(row[0])
    )
    return [(1e-6 * us, Tiling(tile, split)) for us, _, split, tile in sorted(timed, key=lambda t: t[:3])]


def _tiled(problem: Problem, rows: Sequence[Row], rate: float, alone: float) -> list[tuple[float, Tiling]]:
    """The same for problems limited by arithmetic. The sum is split if there would be too few blocks to keep the
    multiprocessors busy. ``rate``: of the first tile; ``alone``: see ``_ALONE``."""
    m, n, k, z = (problem.count(g) for g in ("m", "n", "k", "z"))

    def split_of(row: Row) -> int:
        tile, _, held = row
        tiles = up(m, tile.rows) * up(n, tile.cols) * z
        return max(1, min(held * _MULTIPROCESSORS // tiles, k // _MIN_SPLIT_DEPTH, _SPLITS[-1]))

    def time(row: Row) -> float:
        tile, share, held = row
        split = split_of(row)
        whole, rest = divmod(up(m, tile.rows) * up(n, tile.cols) * z * split, held * _MULTIPROCESSORS)
        waiting = held * alone + up(rest, _MULTIPROCESSORS) * (1 - alone) if rest else 0
        products = (whole * held + waiting) * up(k, split) * tile.rows * tile.cols
        return _START + 2 * products * _MULTIPROCESSORS / (share * rate)

    return [
        (time(row), Tiling(row[0], split if (split := split_of(row)) == 1 else used_parts(problem, row[0], split)))
        for row in sorted(rows, key=time)
    ]


def wholes(problem: Problem, tile: Tile, tf32: bool = False) -> tuple[bool, bool]:
    """Whether a and b are loaded 16 bytes at a time."""
    if not problem.a.dtype is problem.b.dtype is DType.F32:
        return False, False
    room = tf32 or tile.tall * tile.wide <= _MAX_THREAD_SUMS

    def whole(name: Literal["a", "b"], side: Literal["m", "n"]) -> bool:
        turned = problem.along_k(side)
        return (room or not turned) and problem.runs(name, "k" if turned else side, _VECTOR_ELEMENTS)

    return whole("a", "m"), whole("b", "n")


def stages(tile: Tile, kept: DType) -> int:
    """The tile's stages, limited to those that fit static shared memory."""
    return min(tile.stages, _room(tile, kept))


def _room(tile: Tile, kept: DType) -> int:
    """How many of a tile's stages fit static shared memory; a kernel needs two."""
    return STATIC_SHARED_BYTES // (tile.depth * (tile.rows + tile.cols + 2 * _MAX_PADDING) * kept.itemsize)


def tiles_of(problem: Problem, tile: Tile) -> int:
    """Blocks for one z and one part."""
    return up(problem.count("m"), tile.rows) * up(problem.count("n"), tile.cols)


def up(count: int, size: int) -> int:
    """``count / size``, rounded up."""
    return -(-count // size)
