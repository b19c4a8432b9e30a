"""Sums of products as kernels: tensor cores where types and strides allow them, else one kernel for all types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.codegen.cuda.cpp import C_TYPES, constants, register
from dslc.compiler.codegen.cuda.places import Group, Operand, Problem, turned
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

_BLOCKS: Final = 132  # multiprocessors of the largest device; a constant, so that the bits do not depend on it
_LEAST_DEPTH: Final = 128  # products a part, when a sum is divided
_PARTS: Final = 64  # of a divided sum, at most
_CHUNK: Final = 8  # 16-bit elements of one copy


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: rows x columns, of which a thread (a warp on tensor cores) takes tall x wide, in steps of
    ``depth``, ``stages`` of which are in shared memory at a time."""

    rows: int
    cols: int
    tall: int
    wide: int
    depth: int
    stages: int = 2

    @property
    def parts(self) -> int:
        return self.rows // self.tall * (self.cols // self.wide)

    def text(self) -> str:
        return constants(ROWS=self.rows, COLS=self.cols, TALL=self.tall, WIDE=self.wide, STAGES=self.stages)


#: Tiles, the share of the arithmetic rate that each reaches, about, and how many blocks a multiprocessor holds: a small
#: tile reads shared memory more often.
_TILES: Final = (
    (Tile(128, 128, 8, 8, 8), 1.0, 2),
    (Tile(64, 128, 8, 8, 8), 0.9, 2),
    (Tile(64, 64, 4, 8, 16), 0.75, 2),
    (Tile(32, 64, 4, 4, 16), 0.5, 2),
    (Tile(16, 128, 4, 4, 16), 0.45, 2),
    (Tile(32, 32, 4, 4, 16), 0.4, 2),
)
_MMA_TILES: Final = (
    (Tile(128, 256, 64, 64, 64, 4), 1.0, 1),
    (Tile(128, 128, 64, 32, 64, 3), 0.85, 2),
    (Tile(128, 64, 64, 32, 64, 3), 0.6, 2),
    (Tile(64, 64, 32, 32, 64, 4), 0.5, 2),
)
Choice = tuple[Tile, float, int]


@dataclass(frozen=True)
class Contract:
    """The kernel ``k(a, b, c)`` for any types and strides; sums in f32, in f64 for f64."""

    problem: Problem
    tile: Tile
    file: str = "contract.cu"

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        return Geometry((_up(p.count("m"), t.rows), _up(p.count("n"), t.cols), p.count("z") * p.split), (t.parts, 1, 1))

    def head(self) -> str:
        kept = f"using SUM = {C_TYPES[self.problem.a.dtype.computed]};\n"
        return self.problem.text(self.tile.depth) + kept + self.tile.text()


@dataclass(frozen=True)
class Mma:
    """The kernel ``k(a, b, c)`` on tensor cores: a and b bf16 or f16, each contiguous in runs of 8; sums in f32."""

    problem: Problem
    tile: Tile
    file: str = "mma.cu"

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        stages = t.stages * (t.rows + t.cols) * t.depth * p.a.dtype.itemsize
        lines = t.rows * (t.cols * p.c.dtype.itemsize + 16)
        tiles = _up(p.count("m"), t.rows) * _up(p.count("n"), t.cols)
        return Geometry((tiles, 1, p.count("z") * p.split), (32 * t.parts, 1, 1), max(stages, lines))

    def head(self) -> str:
        p = self.problem
        each = 16 // p.c.dtype.itemsize
        whole = int(_runs(p.c, p.sizes("n"), each) and p.c.elements % each == 0)
        kind = "bf16" if p.a.dtype is DType.BF16 else "f16"
        return (
            f'#define MMA_TYPE "{kind}"\n' + p.text(self.tile.depth) + self.tile.text() + constants(WHOLE_LINES=whole)
        )


register(Contract)
register(Mma)


def contract(
    axes: dict[Group, Sequence[tuple[str, int]]], a: Operand, b: Operand, c: Operand
) -> tuple[Contract | Mma, bool]:
    """The kernel with its tile and its division of the sum chosen; True when a and b changed places."""
    problem, swapped = turned(axes, a, b, c)
    if _on_tensor_cores(problem):
        tile, divided = _tiled(problem, _MMA_TILES)
        return Mma(divided, tile), swapped
    # f64: shared memory and registers for twice the bytes
    tile, divided = _tiled(problem, _TILES[2:] if a.dtype is DType.F64 else _TILES)
    return Contract(divided, tile), swapped


def _tiled(problem: Problem, choices: Sequence[Choice]) -> tuple[Tile, Problem]:
    """The tile that takes the least modelled time, and the problem with its sum divided where there would be too few
    blocks."""
    m, n, k, z = (problem.count(g) for g in ("m", "n", "k", "z"))

    def split_of(choice: Choice) -> int:
        tile, _, held = choice
        return max(1, min(held * _BLOCKS // (_up(m, tile.rows) * _up(n, tile.cols) * z), k // _LEAST_DEPTH, _PARTS))

    def time(choice: Choice) -> float:
        tile, share, held = choice
        split = split_of(choice)
        blocks = _up(m, tile.rows) * _up(n, tile.cols) * z * split
        return _up(blocks, held * _BLOCKS) * held * _up(k, split) * tile.rows * tile.cols / share

    chosen = min(choices, key=time)
    tile, split = chosen[0], split_of(chosen)
    if split > 1:
        split = _up(k, replace(problem, split=split).part(tile.depth))
        if split > 1:
            partial = replace(problem.c, dtype=problem.c.dtype.computed)
            return tile, replace(problem, split=split, c=partial)
    return tile, problem


def _on_tensor_cores(problem: Problem) -> bool:
    a, b = problem.a, problem.b
    if a.dtype is not b.dtype or a.dtype not in (DType.BF16, DType.F16):
        return False
    left = problem.sizes("k" if problem.along_k("m") else "m")
    right = problem.sizes("k" if problem.along_k("n") else "n")
    return _runs(a, left, _CHUNK) and _runs(b, right, _CHUNK)


def _runs(operand: Operand, axes: Sequence[tuple[str, int]], length: int) -> bool:
    """Whether ``length`` neighbours along the axes are neighbours in memory, and start at a multiple of it."""
    wide = [(axis, size) for axis, size in axes if size > 1]
    if not wide:
        return False
    axis, size = wide[-1]
    strides = dict(operand.strides)
    if strides.get(axis, 0) != 1 or any(axis == named for c in operand.coordinates for named, _ in c.steps):
        return False
    others = [s for name, s in strides.items() if name != axis] + [c.stride for c in operand.coordinates]
    return size % length == 0 and all(s % length == 0 for s in others)


def _up(count: int, size: int) -> int:
    return -(-count // size)
