"""Modelled time of attention on an H200: by own kernels in tiles, and by cuDNN.

A block of threads takes some rows and meets the keys tile by tile. It takes a start, and a step for each tile; the
multiprocessors run blocks one after another, and no block ends before its last tile:

    seconds = fixed + max(blocks / multiprocessors * (start + mean tiles * step), start + most tiles * step)

Rows and features that fill no tile take the time of whole ones. All figures were fitted to 36 attentions and their
gradients in bf16, alone, on one H200 on 2026-11-28 (``benchmarks/results/ops.md``, "Attention alone, 31 shapes" and
"Masks, and 136 to 256 features").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from dslc.compiler.codegen.device_model import H200

By = Literal["own", "cudnn"]


class Attended(NamedTuple):
    """An attention: ``heads`` of q in all rows of a batch, and what a query may see."""

    heads: int
    queries: int
    keys: int
    features: int
    causal: bool
    window: int


@dataclass(frozen=True, slots=True)
class Pace:
    """``rows`` of a block, ``others`` of a tile; ``fixed`` microseconds; by the features of a tile the microseconds of
    a start and of a step. ``window``: whether tiles beyond a window are left out."""

    rows: int
    others: int
    fixed: float
    steps: Mapping[int, tuple[float, float]]
    window: bool = True

    def seconds(self, one: Attended) -> float:
        """Modelled time, launches included."""
        tiles = [self._tiles(one, first) for first in range(0, one.queries, self.rows)]
        blocks, mean, most = one.heads * len(tiles), sum(tiles) / len(tiles), max(tiles)
        start, step = next(each for width, each in self.steps.items() if one.features <= width)
        turns = blocks / H200.multiprocessors
        return 1e-6 * (self.fixed + max(turns * (start + mean * step), start + most * step))

    def _tiles(self, one: Attended, first: int) -> int:
        """How many tiles the rows from ``first`` on meet."""
        last, near = min(first + self.rows, one.queries) - 1, one.window if self.window else 0
        begin = max(0, first - near + 1) if near else 0
        end = last if one.causal else last + near - 1 if near else one.keys - 1
        return min(end, one.keys - 1) // self.others - begin // self.others + 1


#: Who computes it, and whether it is the gradient.
PACES: Final[Mapping[tuple[By, bool], Pace]] = MappingProxyType({
    ("own", False): Pace(
        128, 64, 2, {32: (0.0, 0.75), 64: (1.05, 1.0), 128: (0.0, 2.0), 192: (5.0, 2.75), 256: (5.0, 4.2)}
    ),
    ("own", True): Pace(
        128, 64, 5, {32: (1.0, 1.8), 64: (4.3, 2.8), 128: (0.0, 6.1), 192: (20.0, 11.3), 256: (30.0, 17.5)}
    ),
    ("cudnn", False): Pace(128, 128, 4, {64: (1.2, 1.3), 128: (1.3, 1.9), 192: (1.5, 3.2), 256: (1.5, 3.8)}),
    ("cudnn", True): Pace(
        64, 128, 12, {64: (2.0, 2.36), 128: (3.7, 3.05), 192: (5.0, 9.2), 256: (7.5, 9.24)}, window=False
    ),
})  # fmt: skip
