"""The tiles of contractions, and what was measured of each: one ``TileSet`` per kind of kernel.

A new tile is a row in the table of its kind. ``tiles.py`` computes the time of a problem from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.contraction.problem import Problem
from dslc.compiler.codegen.cuda.cuda_cpp import constants
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.ir.types import DType

#: On tensor cores, for factors of this kind; None without them.
Cores: TypeAlias = Literal["16 bits", "tf32"] | None


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the result that a block computes: rows x columns. A thread (a warp on tensor cores) computes tall x
    wide of it, in steps of ``depth``. ``stages`` steps are in shared memory at a time; with one stage, the next step
    goes through registers. ``slices`` groups of threads share the depth of a step."""

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


@dataclass(frozen=True, slots=True)
class ThroughputTile:
    """A tile for problems that are limited by arithmetic. With ``blocks`` blocks on each multiprocessor it reaches
    ``rate``, as a fraction of the operations per second of its set's first tile. Small tiles read shared memory more
    often, and wait for it less with many blocks."""

    tile: Tile
    rate: float
    blocks: int


@dataclass(frozen=True, slots=True)
class LatencyTile:
    """A tile for small problems, whose time is mostly waiting for memory. In microseconds: ``start`` of a block without
    steps, ``step`` of each of its steps, and ``shared_step`` of each step of another block on the same
    multiprocessor."""

    tile: Tile
    start: float
    step: float
    shared_step: float


@dataclass(frozen=True, slots=True)
class TileSet:
    """The tiles of one kind of kernel: ``latency`` for problems of at most ``small`` products.

    ``flops``: operations per second of the first throughput tile. ``alone``: the fraction of the time of a full
    multiprocessor that a single block on it takes in any case. ``windows``: the factor of a latency tile's step if
    addresses in windows are computed. ``static_shared``: the kernel uses static shared memory, which limits stages.
    """

    throughput: tuple[ThroughputTile, ...]
    latency: tuple[LatencyTile, ...]
    flops: float
    alone: float
    small: int
    windows: float
    static_shared: bool = True

    def has(self, tile: Tile) -> bool:
        rows: tuple[ThroughputTile | LatencyTile, ...] = (*self.throughput, *self.latency)
        return any(tile == row.tile for row in rows)


#: Without tensor cores. Throughput tiles here and in TF32 were measured on an H200, with 47 gradients for weights and
#: three numbers of parts each ("Weight gradients" in ``benchmarks/results/ops.md``); the time model of latency tiles
#: was fitted to 22 small f32 problems on an H200.
_F32: Final = TileSet(
    throughput=(
        ThroughputTile(Tile(128, 128, 8, 8, 8), 1.0, 2),
        ThroughputTile(Tile(64, 128, 8, 8, 8), 0.72, 2),
        ThroughputTile(Tile(64, 64, 4, 8, 16), 0.83, 4),
        ThroughputTile(Tile(32, 64, 4, 4, 16), 0.6, 4),
        ThroughputTile(Tile(16, 128, 4, 4, 16), 0.42, 4),
        ThroughputTile(Tile(32, 32, 4, 4, 16), 0.55, 8),
        ThroughputTile(Tile(32, 32, 4, 4, 32), 0.55, 8),
    ),
    latency=(
        LatencyTile(Tile(64, 64, 4, 8, 16, 3), 2.98, 0.50, 0.33),
        LatencyTile(Tile(32, 64, 4, 4, 32, 3), 1.71, 0.65, 0.59),
        LatencyTile(Tile(32, 64, 4, 4, 16, 4), 1.66, 0.38, 0.20),
        LatencyTile(Tile(32, 32, 4, 4, 16, 4), 1.52, 0.29, 0.07),
        LatencyTile(Tile(16, 64, 4, 4, 16, 3, 2), 2.03, 0.26, 0.12),
        LatencyTile(Tile(16, 32, 4, 4, 16, 4), 1.25, 0.34, 0.04),
        LatencyTile(Tile(16, 32, 2, 4, 32, 3), 1.39, 0.38, 0.15),
        LatencyTile(Tile(16, 16, 4, 4, 32, 4, 8), 1.65, 0.17, 0.06),
    ),
    flops=30e12,
    alone=1 / 3,
    small=1 << 26,
    windows=2.9,
)
#: f64 takes twice the shared memory and registers, so its kernels have none of the large tiles.
_F64: Final = replace(_F32, throughput=_F32.throughput[2:])
_TF32: Final = TileSet(
    throughput=(
        ThroughputTile(Tile(128, 128, 32, 64, 16, 2), 1.0, 2),
        ThroughputTile(Tile(64, 128, 32, 64, 16, 3), 0.78, 4),
        ThroughputTile(Tile(64, 64, 32, 32, 32, 2), 0.76, 4),
        ThroughputTile(Tile(128, 32, 32, 32, 16, 3), 0.76, 4),
        ThroughputTile(Tile(128, 16, 32, 16, 16, 3), 0.5, 4),
    ),
    latency=(
        LatencyTile(Tile(64, 64, 32, 32, 32, 2), 2.78, 0.54, 0.58),
        LatencyTile(Tile(32, 32, 16, 16, 16, 4), 1.67, 0.17, 0.06),
        LatencyTile(Tile(32, 32, 32, 16, 32, 4), 1.44, 0.35, 0.22),
        LatencyTile(Tile(32, 16, 16, 16, 64, 2), 1.51, 0.48, 0.21),
        LatencyTile(Tile(16, 64, 16, 16, 32, 4, 2), 1.84, 0.30, 0.32),
        LatencyTile(Tile(16, 64, 16, 16, 8, 4), 1.54, 0.15, 0.06),
        LatencyTile(Tile(16, 32, 16, 16, 32, 4, 2), 1.71, 0.18, 0.14),
        LatencyTile(Tile(16, 16, 16, 16, 64, 4, 8), 1.64, 0.22, 0.16),
    ),
    flops=100e12,
    alone=1 / 3,
    small=1 << 26,
    windows=2.9,
)
#: bf16 and f16. ``alone`` is not measured, and ``flops`` is 0.4 of the peak. The time model of latency tiles was fitted
#: to 641 times of 87 small convolutions, gradients and products on an H200, with 1, 2, 4 and 8 parts ("Small
#: convolutions" in ``benchmarks/results/ops.md``).
_HALF: Final = TileSet(
    throughput=(
        ThroughputTile(Tile(128, 256, 64, 64, 64, 4), 1.0, 1),
        ThroughputTile(Tile(128, 128, 64, 32, 64, 3), 0.85, 2),
        ThroughputTile(Tile(128, 64, 64, 32, 64, 3), 0.6, 2),
        ThroughputTile(Tile(64, 64, 32, 32, 64, 4), 0.5, 2),
        ThroughputTile(Tile(128, 32, 32, 32, 64, 4), 0.35, 2),
        ThroughputTile(Tile(128, 16, 32, 16, 64, 4), 0.2, 2),
    ),
    latency=(
        LatencyTile(Tile(32, 32, 16, 16, 64, 6, 2), 1.57, 0.19, 0.12),
        LatencyTile(Tile(64, 32, 32, 16, 128, 4, 2), 2.03, 0.39, 0.69),
        LatencyTile(Tile(64, 64, 32, 32, 64, 4), 1.90, 0.34, 0.41),
    ),
    flops=0.4 * H200.matrix16,
    alone=1.0,
    small=1 << 28,
    windows=1.3,
    static_shared=False,
)


def tile_set(problem: Problem, cores: Cores) -> TileSet:
    """The tiles of the kernel that computes a problem with these cores."""
    match cores:
        case "16 bits":
            return _HALF
        case "tf32":
            return _TF32
        case None:
            return _F64 if problem.a.dtype is DType.F64 else _F32
