"""Sums of products as kernels: tensor cores where types and strides allow them, else one kernel for all types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cuda.cpp import C_TYPES, Code, constants, register_sized
from dslc.compiler.codegen.cuda.places import Group, Problem
from dslc.compiler.codegen.launch import Given
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
    """The kernel ``k(a, b, c, numbers)`` for any types and strides; sums in f32, in f64 for f64."""

    problem: Problem
    tile: Tile

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        return Geometry((_tiles_of(p, t), p.split, p.count("z")), (t.parts, 1, 1))

    @cached_property
    def _printed(self) -> tuple[Code, Given]:
        text, numbers = self.problem.text(self.tile.depth)
        kept = f"using SUM = {C_TYPES[self.problem.a.dtype.computed]};\n"
        return Code("contract.cu", text + kept + self.tile.text()), numbers.given

    @property
    def code(self) -> Code:
        return self._printed[0]

    @property
    def given(self) -> Given:
        return self._printed[1]


@dataclass(frozen=True)
class Mma:
    """The kernel ``k(a, b, c, numbers)`` on tensor cores: a and b bf16 or f16, each contiguous in runs of 8; sums in
    f32."""

    problem: Problem
    tile: Tile

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        stages = t.stages * (t.rows + t.cols) * t.depth * p.a.dtype.itemsize
        lines = t.rows * (t.cols * p.c.dtype.itemsize + 16)
        return Geometry((_tiles_of(p, t), p.split, p.count("z")), (32 * t.parts, 1, 1), max(stages, lines))

    @cached_property
    def _printed(self) -> tuple[Code, Given]:
        p, kind = self.problem, "bf16" if self.problem.a.dtype is DType.BF16 else "f16"
        each = 16 // p.c.dtype.itemsize
        whole = int(p.runs("c", "n", each) and p.c.elements % each == 0)
        text, numbers = p.text(self.tile.depth)
        head = f'#define MMA_TYPE "{kind}"\n' + text + self.tile.text() + constants(WHOLE_LINES=whole)
        return Code("mma.cu", head), numbers.given

    @property
    def code(self) -> Code:
        return self._printed[0]

    @property
    def given(self) -> Given:
        return self._printed[1]


register_sized(Contract)
register_sized(Mma)


def contract(problems: Sequence[Problem]) -> tuple[list[Contract | Mma], bool]:
    """The kernels of sums that fill one result together; True when a and b have changed places in them.

    The one with most products says which tile and division all have; so their code is one where they are of one form.
    """
    longest = max(problems, key=lambda p: p.count("k"))
    swapped = longest.dense_along_m()
    if swapped:
        problems, longest = [p.turned() for p in problems], longest.turned()
    fast = all(map(_on_tensor_cores, problems))
    # f64: shared memory and registers for twice the bytes
    choices = _MMA_TILES if fast else _TILES[2:] if longest.a.dtype is DType.F64 else _TILES
    tile, split = _tiled(longest, choices)
    kept = longest.c.dtype if split == 1 else longest.c.dtype.computed
    divided = [replace(p, split=split, c=replace(p.c, dtype=kept)) for p in problems]
    return [Mma(p, tile) if fast else Contract(p, tile) for p in divided], swapped


def _tiled(problem: Problem, choices: Sequence[Choice]) -> tuple[Tile, int]:
    """The tile that takes the least modelled time, and the parts of its sum, divided where there would be too few
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
    return tile, split if split == 1 else _up(k, replace(problem, split=split).part(tile.depth))


def _on_tensor_cores(problem: Problem) -> bool:
    a, b = problem.a, problem.b
    if a.dtype is not b.dtype or a.dtype not in (DType.BF16, DType.F16):
        return False
    left: Group = "k" if problem.along_k("m") else "m"
    right: Group = "k" if problem.along_k("n") else "n"
    return problem.runs("a", left, _CHUNK) and problem.runs("b", right, _CHUNK)


def _tiles_of(problem: Problem, tile: Tile) -> int:
    return _up(problem.count("m"), tile.rows) * _up(problem.count("n"), tile.cols)


def _up(count: int, size: int) -> int:
    return -(-count // size)
