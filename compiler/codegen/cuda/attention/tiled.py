"""Tiled attention of 16-bit floats on tensor cores: neither scores nor probabilities go to memory.

The forward pass is one kernel. The backward pass computes the sums of dy * y, then runs one kernel by queries for dq
and one by keys for dk and dv. Used if there is no mask, q, k and v have 32, 64 or 128 features each, and the scale is
positive; ``attention/lower.py`` handles the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Access, RegionBuilder, dense
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr

Mode = Literal["forward", "dq", "dkdv"]
_MODES: Final[tuple[Mode, ...]] = ("forward", "dq", "dkdv")
_FEATURES: Final = (32, 64, 128)


@described("Tile", "warps tall others stages held")
@dataclass(frozen=True, slots=True)
class Tile:
    """``warps`` of ``tall`` times 16 rows, which process ``others`` other rows at a time; ``stages`` of these are in
    shared memory.

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


#: By mode and features: the fastest tile that fits registers and shared memory, measured on an H200.
TILES: Final[dict[tuple[Mode, int], Tile]] = {
    ("forward", 32): Tile(4, 2, 64, 3, True),
    ("forward", 64): Tile(4, 2, 64, 2, True),
    ("forward", 128): Tile(4, 2, 32, 2, False),
    ("dq", 32): Tile(4, 2, 64, 2, True),
    ("dq", 64): Tile(4, 1, 64, 2, True),
    ("dq", 128): Tile(4, 1, 64, 2, False),
    ("dkdv", 32): Tile(4, 1, 64, 2, True),
    ("dkdv", 64): Tile(4, 2, 32, 2, False),
    ("dkdv", 128): Tile(4, 1, 64, 2, False),
}


@described("Tiled", "mode dtype stack own other features causal scale tile file")
@dataclass(frozen=True)
class TiledAttention(CppKernel):
    """One kernel: processes ``own`` rows (queries, or keys for dk and dv) against ``other`` rows, for each of
    ``stack``."""

    mode: Mode
    dtype: DType
    stack: int
    own: int
    other: int
    features: int
    causal: bool
    scale: float
    tile: Tile
    file: str = "attention.cu"

    @property
    def geometry(self) -> Geometry:
        t, row = self.tile, 2 * self.features
        own = (1 if self.mode == "forward" else 2) * t.rows * row
        stage = 2 * t.others * row + (8 * t.others if self.mode == "dkdv" else 0)
        blocks = -(-self.own // t.rows) * self.stack
        return Geometry((blocks, 1, 1), (32 * t.warps, 1, 1), own + t.stages * stage)

    def head(self) -> str:
        t = self.tile
        text = f'#define MODE {_MODES.index(self.mode)}\n#define MMA_TYPE "{self.dtype.value}"\n'
        text += f"using T = {C_TYPES[self.dtype]};\nconstexpr float SCALE = (float){float(self.scale).hex()};\n"
        return text + constants(
            D=self.features, OWN_COUNT=self.own, OTHER_COUNT=self.other, CAUSAL=int(self.causal),
            WARPS=t.warps, TALL=t.tall, OTHERS=t.others, STAGES=t.stages, HELD=int(t.held),
        )  # fmt: skip


def fits(node: Node) -> bool:
    """Whether these kernels compute an ``sdpa`` or its gradient."""
    q, k, v = node.input_types[:3]
    masked = len(node.inputs) > (3 if node.op.name == "sdpa" else 6)
    return (
        not masked
        and q.dtype in (DType.BF16, DType.F16)
        and q.ints[-1] == v.ints[-1]
        and q.ints[-1] in _FEATURES
        and float_attr(node.attrs, "scale") > 0
        and min(q.bytes, k.bytes) > 0
    )


def _tiled(node: Node, mode: Mode) -> TiledAttention:
    q, k = node.input_types[:2]
    queries, keys, features = q.ints[-2], k.ints[-2], q.ints[-1]
    own, other = (keys, queries) if mode == "dkdv" else (queries, keys)
    causal, scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
    tile = TILES[mode, features]
    return TiledAttention(mode, q.dtype, prod(q.ints[:-2]), own, other, features, causal, scale, tile)


def sdpa(node: Node) -> list[Launch]:
    return [Launch(_tiled(node, "forward"), node.inputs, node.outputs)]


def sdpa_grad(node: Node) -> list[Launch]:
    (q, k, v, y, lse, dy), (dq, dk, dv) = node.inputs, node.outputs
    shape = y.type.ints
    delta = Scratch(0, prod(shape[:-1]) * DType.F32.itemsize)
    wide, row = Access(y.type.dtype, dense(shape)), Access(DType.F32, (*dense(shape[:-1]), 0))
    sums = RegionBuilder(shape[:-1], shape[-1:], [wide, wide], [row])
    sums.element()
    total = sums.reduce("sum", sums.let(sums.input(0) * sums.input(1), DType.F32))
    sums.row()
    sums.store(0, total)
    reads = (q, k, v, lse, delta, dy)
    return [
        Launch(sums.region(), (dy, y), (delta,)),
        Launch(_tiled(node, "dq"), reads, (dq,)),
        Launch(_tiled(node, "dkdv"), reads, (dk, dv)),
    ]
