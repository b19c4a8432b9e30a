"""Sums of products as kernels: tensor cores where types and strides allow them, else one kernel for all types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import gcd, prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.cpp import C_TYPES, Code, Numbers, constants
from dslc.compiler.codegen.cuda.epilogue import NOTHING, Epilogue
from dslc.compiler.codegen.cuda.places import GROUPS, Group, Problem
from dslc.compiler.codegen.launch import Given, Shared
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

_BLOCKS: Final = 132  # multiprocessors of the largest device; a constant, so that the bits do not depend on it
_LEAST_DEPTH: Final = 128  # products a part, when a sum is divided
_PARTS: Final = 64  # of a divided sum, at most
_CHUNK: Final = 8  # 16-bit elements of one copy
_WHOLE: Final = 4  # those of 32 bits
_MOST_TURNED: Final = 32  # sums of a thread that registers hold beside four values of k of each row and column
_SHARED: Final = 48 << 10  # bytes of shared memory that need no asking for
_PAD: Final = 4  # elements behind each line of a tile
_THREADS: Final = 128  # of a block that sums parts
_MOST_DOWN: Final = 32  # of these that share the parts of an element
_MANY: Final = 1 << 15  # threads that keep a device busy

_SMALL: Final = 1 << 26  # products of a problem whose time is that of steps waiting for memory

#: A model of small problems without tensor cores, in microseconds, fitted to 3,400 runs of 22 of them on an H200.
_MORE: Final = 0.15  # for each further block of a multiprocessor
_WINDOWS: Final = 1.75  # times as long a step, where places of windows are worked out
_LAUNCH: Final = 1.3  # of adding up parts
_BANDWIDTH: Final = 9e6  # bytes of parts in a microsecond
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
_LEAST_PART: Final = 16  # products a part


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: rows x columns, of which a thread (a warp on tensor cores) takes tall x wide, in steps of
    ``depth``, ``stages`` of which are in shared memory at a time; with one stage the next goes through registers.
    ``slices`` groups of threads share the depth of a step (not on tensor cores)."""

    rows: int
    cols: int
    tall: int
    wide: int
    depth: int
    stages: int = 2
    slices: int = 1

    @property
    def parts(self) -> int:
        """Of which the block consists: threads, or warps."""
        return self.rows // self.tall * (self.cols // self.wide) * self.slices

    def text(self) -> str:
        return constants(ROWS=self.rows, COLS=self.cols, TALL=self.tall, WIDE=self.wide, STAGES=self.stages)


#: Tiles, the share of the arithmetic rate that each reaches, about, and how many blocks a multiprocessor holds: a small
#: tile reads shared memory more often.
_TILES: Final = (
    (Tile(128, 128, 8, 8, 8), 1.0, 2),
    (Tile(64, 128, 8, 8, 8), 0.9, 4),
    (Tile(64, 64, 4, 8, 16), 0.75, 4),
    (Tile(32, 64, 4, 4, 16), 0.5, 6),
    (Tile(16, 128, 4, 4, 16), 0.45, 6),
    (Tile(32, 32, 4, 4, 16), 0.4, 8),
    (Tile(32, 32, 4, 4, 32), 0.4, 8),
)
#: Those of small problems: microseconds of a block with no steps, of a step, and of each step of another block of the
#: same multiprocessor.
_SMALL_TILES: Final = (
    (Tile(64, 64, 4, 8, 16, 3), 2.86, 0.57, 0.42),
    (Tile(32, 64, 4, 4, 32, 3), 1.72, 0.87, 0.67),
    (Tile(32, 64, 4, 4, 16, 4), 2.02, 0.46, 0.30),
    (Tile(16, 128, 4, 4, 16, 4), 1.50, 0.60, 0.43),
    (Tile(32, 32, 4, 4, 32, 1), 1.18, 0.97, 0.31),
    (Tile(32, 32, 4, 4, 16, 4), 1.77, 0.36, 0.08),
    (Tile(16, 64, 4, 4, 16, 4), 1.49, 0.53, 0.16),
    (Tile(16, 32, 4, 4, 16, 4), 1.36, 0.50, 0.06),
)
_MMA_TILES: Final = (
    (Tile(128, 256, 64, 64, 64, 4), 1.0, 1),
    (Tile(128, 128, 64, 32, 64, 3), 0.85, 2),
    (Tile(128, 64, 64, 32, 64, 3), 0.6, 2),
    (Tile(64, 64, 32, 32, 64, 4), 0.5, 2),
)
Choice = tuple[Tile, float, int]


class _Printed(Shared):
    """Code and the numbers that it is given come from one look at the problem."""

    @cached_property
    @abstractmethod
    def _printed(self) -> tuple[Code, Given]: ...

    @property
    def code(self) -> Code:
        return self._printed[0]

    @property
    def given(self) -> Given:
        return self._printed[1]


@dataclass(frozen=True)
class Contract(_Printed):
    """The kernel ``k(a, b, others..., c, numbers)`` for any types and strides; sums in f32, in f64 for f64.
    ``epilogue`` (of f32 or f64 alone): what becomes of a sum, with the others, before it is written."""

    problem: Problem
    tile: Tile
    epilogue: Epilogue | None = None

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        return Geometry((_tiles_of(p, t), p.split, p.count("z")), (t.parts, 1, 1))

    @cached_property
    def _printed(self) -> tuple[Code, Given]:
        kept = self.problem.a.dtype.computed
        finished = partial(_finished, self.epilogue, dtype=self.problem.c.dtype)
        text, numbers = self.problem.text(self.tile.depth, finished)
        head = f"using SUM = {C_TYPES[kept]};\n"
        tile = replace(self.tile, stages=_stages(self.tile, kept))
        how = constants(SLICES=tile.slices, WHOLE_A=int(self._whole("a", "m")), WHOLE_B=int(self._whole("b", "n")))
        return Code("contract.cu", head + text + tile.text() + how), numbers.given

    def _whole(self, name: Literal["a", "b"], side: Literal["m", "n"]) -> bool:
        """Whether an operand comes 16 bytes at a time."""
        turned = self.problem.along_k(side)
        room = not turned or self.tile.tall * self.tile.wide <= _MOST_TURNED
        f32 = self.problem.a.dtype is DType.F32 and self.problem.b.dtype is DType.F32
        return f32 and room and self.problem.runs(name, "k" if turned else side, _WHOLE)


@dataclass(frozen=True)
class Mma(_Printed):
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


@dataclass(frozen=True)
class Parts(_Printed):
    """The kernel ``k(parts, others..., c, numbers)``: the sum of ``count`` parts of ``elements`` each. ``epilogue`` as
    that of ``Contract``."""

    dtype: DType
    elements: int
    count: int
    epilogue: Epilogue | None = None

    @property
    def lanes(self) -> int:
        """Elements that a thread has side by side."""
        return gcd(self.elements, 16 // self.dtype.computed.itemsize)

    @property
    def down(self) -> int:
        """Threads that share the parts of an element: several where there are few elements."""
        down = 1
        while down < _MOST_DOWN and self.count >= 4 * down and self.elements // self.lanes * down < _MANY:
            down *= 2
        return down

    @property
    def together(self) -> int:
        """Parts that a thread has on their way at a time."""
        return min(16, 1 << (_up(self.count, self.down) - 1).bit_length())

    @property
    def geometry(self) -> Geometry:
        return Geometry((_up(self.elements // self.lanes * self.down, _THREADS), 1, 1), (_THREADS, 1, 1))

    @cached_property
    def _printed(self) -> tuple[Code, Given]:
        numbers = Numbers(PARTS=self.count)
        numbers.add("ELEMENTS", self.elements, "i64")
        finished = _finished(self.epilogue, numbers, self.dtype)
        text = f"using SUM = {C_TYPES[self.dtype.computed]};\nusing C = {C_TYPES[self.dtype]};\n"
        text += constants(THREADS=_THREADS, LANES=self.lanes, DOWN=self.down, TOGETHER=self.together)
        return Code("parts.cu", text + numbers.text() + finished), numbers.given


def _stages(tile: Tile, kept: DType) -> int:
    """As many of a tile's stages as shared memory holds without asking."""
    return min(tile.stages, _room(tile, kept))


def _room(tile: Tile, kept: DType) -> int:
    """How many of a tile's stages shared memory holds without asking; a kernel needs two."""
    return _SHARED // (tile.depth * (tile.rows + tile.cols + 2 * _PAD) * kept.itemsize)


def _finished(epilogue: Epilogue | None, numbers: Numbers, dtype: DType) -> str:
    """What the kernels say of a sum that is ready."""
    return NOTHING if epilogue is None else epilogue.text(numbers, dtype)


def contract(problems: Sequence[Problem], epilogue: Epilogue | None = None) -> tuple[list[Contract | Mma], bool]:
    """The kernels of sums that fill one result together; True when a and b have changed places in them. ``epilogue``
    (of f32 or f64 alone) is left to who adds up the parts where the sum is divided.

    The one with most products says which tile and division all have; so their code is one where they are of one form.
    """
    longest = max(problems, key=lambda p: p.count("k"))
    swapped = longest.dense_along_m()
    if swapped:
        problems, longest = [p.turned() for p in problems], longest.turned()
    fast = all(map(_on_tensor_cores, problems))
    # f64: shared memory and registers for twice the bytes
    choices = _MMA_TILES if fast else _TILES[2:] if longest.a.dtype is DType.F64 else _TILES
    if not fast and prod(map(longest.count, GROUPS)) <= _SMALL:
        tile, split = _quickest(longest)
    else:
        tile, split = _tiled(longest, choices)
    kept = longest.c.dtype if split == 1 else longest.c.dtype.computed
    divided = [replace(p, split=split, c=replace(p.c, dtype=kept)) for p in problems]
    assert epilogue is None or not fast
    own = epilogue if split == 1 else None
    return [Mma(p, tile) if fast else Contract(p, tile, own) for p in divided], swapped


def _quickest(problem: Problem) -> tuple[Tile, int]:
    """The tile and the parts of the sum that take the least modelled time.

    A block's steps follow each other, and other blocks of a multiprocessor take their share of its arithmetic. Many
    parts make few steps, and are added up by a launch of their own.
    """
    m, n, k, z = (problem.count(g) for g in ("m", "n", "k", "z"))

    windows = _WINDOWS if problem.a.windows or problem.b.windows else 1.0

    def time(tile: Tile, start: float, step: float, beside: float, split: int) -> float:
        steps = windows * (replace(problem, split=split).part(tile.depth) // tile.depth)
        more = max(0.0, _up(m, tile.rows) * _up(n, tile.cols) * z * split / _BLOCKS - 1)
        adding = _LAUNCH + problem.c.elements * split * problem.c.dtype.computed.itemsize / _BANDWIDTH
        return start + steps * step + more * (_MORE + steps * beside) + (adding if split > 1 else 0.0)

    def divided(tile: Tile) -> set[int]:
        """So many parts that the last is not empty."""
        return {_up(k, replace(problem, split=s).part(tile.depth)) for s in _SPLITS if s * _LEAST_PART <= k} or {1}

    timed = (
        (time(*choice, split), i, split, choice[0])
        for i, choice in enumerate(_SMALL_TILES)
        if _room(choice[0], problem.a.dtype.computed) > 1
        for split in divided(choice[0])
    )
    _, _, split, tile = min(timed, key=lambda t: t[:3])
    return tile, split


def _tiled(problem: Problem, choices: Sequence[Choice]) -> tuple[Tile, int]:
    """The same where arithmetic fills the time, which two blocks keep a multiprocessor busy with: the sum is divided
    where there would be too few blocks."""
    m, n, k, z = (problem.count(g) for g in ("m", "n", "k", "z"))

    def split_of(choice: Choice) -> int:
        tile, _, most = choice
        held = min(2, most)
        return max(1, min(held * _BLOCKS // (_up(m, tile.rows) * _up(n, tile.cols) * z), k // _LEAST_DEPTH, _PARTS))

    def time(choice: Choice) -> float:
        tile, share, most = choice
        held, split = min(2, most), split_of(choice)
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
