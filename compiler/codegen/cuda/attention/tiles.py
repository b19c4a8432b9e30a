"""The tiles of attention: the rows of one block of threads, and the number of other rows that it processes at a time.

The own rows of the modes ``forward`` and ``dq`` are queries, and the others keys; for ``dkdv``, ``dk`` and ``dv`` they
are exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_STEP_BYTES: Final = 16 << 10  # of the keys of a long step
_SCORES: Final = 256  # the keys of a long step times the bytes of an element: registers hold their scores
_HELD: Final = 128  # features of a row that registers hold next to these scores
_COPY: Final = 16  # bytes that a thread copies at once

Mode = Literal["forward", "dq", "dkdv", "dk", "dv"]


@described("Tile", "warps tall others stages held")
@dataclass(frozen=True, slots=True)
class Tile:
    """``warps`` warps with ``16 * tall`` own rows each process ``others`` other rows at a time, of which ``stages``
    sets are in shared memory.

    ``held``: a warp's own rows stay in registers.
    """

    warps: int
    tall: int
    others: int
    stages: int
    held: bool

    @property
    def rows(self) -> int:
        return self.warps * self.tall * 16


_WIDTHS: Final = (32, 64, 128, 192, 256)  # features of a row in a tile
#: By mode and width: the fastest tile that fits registers and shared memory, measured on an H200 with enough blocks to
#: fill it. Above 128 features it is the fastest one that fits 99 KiB of shared memory (``BLOCK_SHARED_BYTES``).
TILES: Final[Mapping[tuple[Mode, int], Tile]] = MappingProxyType({
    ("forward", 32): Tile(4, 2, 64, 3, True),
    ("forward", 64): Tile(4, 2, 64, 2, True),
    ("forward", 128): Tile(4, 2, 32, 2, False),
    ("dq", 32): Tile(4, 2, 64, 2, True),
    ("dq", 64): Tile(4, 1, 64, 2, True),
    ("dq", 128): Tile(4, 1, 64, 2, False),
    ("dkdv", 32): Tile(4, 1, 64, 2, True),
    ("dkdv", 64): Tile(4, 2, 32, 2, False),
    ("dkdv", 128): Tile(4, 1, 64, 2, False),
    ("forward", 192): Tile(4, 1, 32, 2, True),
    ("forward", 256): Tile(4, 1, 32, 2, False),
    ("dq", 192): Tile(4, 1, 32, 2, False),
    ("dq", 256): Tile(4, 1, 16, 2, False),
    ("dk", 192): Tile(4, 1, 32, 2, False),
    ("dk", 256): Tile(4, 1, 16, 2, False),
    ("dv", 192): Tile(4, 1, 32, 2, True),
    ("dv", 256): Tile(4, 1, 32, 2, True),
})  # fmt: skip
#: The same in TF32, whose rows have twice the bytes: the fastest that fits 99 KiB, measured with 1,024 causal rows on
#: an H200 (``benchmarks/results/ops.md``, "Attention in TF32").
TF32_TILES: Final[Mapping[tuple[Mode, int], Tile]] = MappingProxyType({
    ("forward", 32): Tile(4, 2, 64, 2, False),
    ("forward", 64): Tile(4, 2, 64, 2, False),
    ("forward", 128): Tile(4, 1, 32, 2, True),
    ("dq", 32): Tile(4, 2, 32, 2, True),
    ("dq", 64): Tile(4, 2, 32, 2, False),
    ("dq", 128): Tile(4, 1, 16, 2, False),
    ("dkdv", 32): Tile(4, 2, 32, 3, False),
    ("dkdv", 64): Tile(4, 2, 32, 2, False),
    ("dkdv", 128): Tile(4, 1, 16, 2, False),
})  # fmt: skip


def tile_of(dtype: DType, mode: Mode, features: int, own: int, other: int, stack: int, window: int = 0) -> Tile:
    """The tile for ``stack`` heads with ``own`` rows each, which meet ``other`` rows. It has half as many rows as in
    the table, and each block half of the work, if each block then still has a multiprocessor of an H200 for itself, or
    if that takes no more blocks. Each row combines the others in the same order. With causal masks and windows it skips
    more tiles that are masked as a whole, which may change a last bit.

    If each block of a forward pass has a multiprocessor for itself, the latency of its steps takes longer than their
    work: it meets the others in as few steps as fit (``_in_few_steps``), but for a ``window``, where longer steps meet
    more keys that are masked."""
    tile = tiles_of(dtype)[mode, width_of(features)]
    low = replace(tile, tall=1)
    high_blocks, low_blocks = (-(-own // each.rows) * stack for each in (tile, low))
    if mode == "forward" and not window and low_blocks <= H200.multiprocessors:
        return _in_few_steps(low, width_of(features), dtype, other)
    return low if low_blocks <= max(high_blocks, H200.multiprocessors) else tile


def _in_few_steps(tile: Tile, width: int, dtype: DType, other: int) -> Tile:
    """The tile with more others at a time: the fewest steps of ``_STEP_BYTES`` of keys, all of one length, and as many
    of them in flight as fit the shared memory of a block. Measured in ``benchmarks/results/ops.md``, "Attention of few
    blocks"."""
    row = width * dtype.itemsize
    grain = max(16, 32 * tile.warps * _COPY // row)  # each thread copies the same number of pieces
    most = max(tile.others, min(_SCORES // dtype.itemsize, _STEP_BYTES // row) // grain * grain)
    steps = -(-other // most)
    others = min(most, -(-other // (steps * grain)) * grain)
    stages = (BLOCK_SHARED_BYTES - tile.rows * row) // (2 * others * row)
    return replace(tile, others=others, stages=max(2, min(steps + 1, stages)), held=tile.held or width <= _HELD)


def width_of(features: int) -> int:
    """The width of the tiles for heads with so many features."""
    return next(width for width in _WIDTHS if features <= width)


def tiles_of(dtype: DType) -> Mapping[tuple[Mode, int], Tile]:
    """By mode and width, the tile for many rows of a dtype; f32 is for TF32."""
    return TILES if dtype.is_half else TF32_TILES
