"""Kernels of contractions: tensor cores if types and strides allow them, else one kernel for all types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import gcd
from typing import Final

from dslc.compiler.codegen.cuda.contraction.epilogue import NOTHING, Epilogue
from dslc.compiler.codegen.cuda.contraction.problem import Group, Problem
from dslc.compiler.codegen.cuda.contraction.tile_tables import Cores, Tile
from dslc.compiler.codegen.cuda.contraction.tiles import (
    Tiling,
    possible_stages,
    tiles_of,
    tiling_of,
    vector_loads,
)
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, CodeWithArgs, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.sizes import ceil_div
from dslc.compiler.ir.types import DType

_COPY_ELEMENTS: Final = 8  # 16-bit elements of one copy
_BLOCK_THREADS: Final = 128  # per block of the kernel that adds parts
_MAX_DOWN: Final = 32  # most threads that share the parts of an element
_BUSY_THREADS: Final = 1 << 15  # threads that keep a device busy


@dataclass(frozen=True)
class Contract(CodeWithArgs):
    """The kernel ``k(a, b, others..., c, numbers)`` for any types and strides; sums in f32, in f64 for f64.
    ``epilogue``: applied to a sum and the others before it is stored. ``tf32``: on tensor cores, with f32 factors
    rounded to TF32."""

    problem: Problem
    tile: Tile
    epilogue: Epilogue | None = None
    tf32: bool = False

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        return Geometry((tiles_of(p, t), p.split, p.count("z")), (t.parts * (WARP if self.tf32 else 1), 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        computed = self.problem.a.dtype.computed
        finished = partial(_epilogue_text, self.epilogue, dtype=self.problem.c.dtype)
        text, numbers = self.problem.text(self.tile.depth, finished)
        head = f"using SUM = {C_TYPES[computed]};\n"
        tile = replace(self.tile, stages=possible_stages(self.tile, computed))
        vectors = vector_loads(self.problem, self.tile, self.tf32)
        how = constants(SLICES=tile.slices, TF32=int(self.tf32), WHOLE_A=int(vectors.a), WHOLE_B=int(vectors.b))
        return Code("contract.cu", head + text + tile.text() + how), numbers.scalar_args


@dataclass(frozen=True)
class Mma(CodeWithArgs):
    """The kernel ``k(a, b, others..., c, numbers)`` on tensor cores: a and b are bf16 or f16, each contiguous in runs
    of 8; sums in f32. ``epilogue``: as in ``Contract``."""

    problem: Problem
    tile: Tile
    epilogue: Epilogue | None = None

    @property
    def geometry(self) -> Geometry:
        p, t = self.problem, self.tile
        stages = t.stages * (t.rows + t.cols) * t.depth * p.a.dtype.itemsize
        lines = t.rows * (t.cols * p.c.dtype.itemsize + 16)
        if t.slices > 1:
            lines = t.slices * t.rows * (t.cols * DType.F32.itemsize + 16)
        return Geometry((tiles_of(p, t), p.split, p.count("z")), (WARP * t.parts, 1, 1), max(stages, lines))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        p, kind = self.problem, "bf16" if self.problem.a.dtype is DType.BF16 else "f16"
        vector = 16 // p.c.dtype.itemsize
        whole_lines = int(p.runs("c", "n", vector) and p.c.elements % vector == 0)
        finished = partial(_epilogue_text, self.epilogue, dtype=p.c.dtype)
        text, numbers = p.text(self.tile.depth, finished)
        finishes = self.epilogue is not None
        how = constants(SLICES=self.tile.slices, WHOLE_LINES=whole_lines, FINISHES=int(finishes))
        return Code("mma.cu", f'#define MMA_TYPE "{kind}"\n' + text + self.tile.text() + how), numbers.scalar_args


@dataclass(frozen=True)
class AddParts(CodeWithArgs):
    """The kernel ``k(parts, others..., c, numbers)``: adds ``count`` parts of ``elements`` each. ``epilogue``: as in
    ``Contract``."""

    dtype: DType
    elements: int
    count: int
    epilogue: Epilogue | None = None

    @property
    def lanes(self) -> int:
        """Adjacent elements per thread."""
        return gcd(self.elements, 16 // self.dtype.computed.itemsize)

    @property
    def down(self) -> int:
        """Threads that share the parts of an element: several if there are few elements."""
        down = 1
        while down < _MAX_DOWN and self.count >= 4 * down and self.elements // self.lanes * down < _BUSY_THREADS:
            down *= 2
        return down

    @property
    def together(self) -> int:
        """Parts that a thread loads at once."""
        return min(16, 1 << (ceil_div(self.count, self.down) - 1).bit_length())

    @property
    def geometry(self) -> Geometry:
        return Geometry(
            (ceil_div(self.elements // self.lanes * self.down, _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1)
        )

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        numbers = Numbers(PARTS=self.count)
        numbers.add("ELEMENTS", self.elements, "i64")
        finished = _epilogue_text(self.epilogue, numbers, self.dtype)
        text = f"using SUM = {C_TYPES[self.dtype.computed]};\nusing C = {C_TYPES[self.dtype]};\n"
        text += constants(THREADS=_BLOCK_THREADS, LANES=self.lanes, DOWN=self.down, TOGETHER=self.together)
        return Code("parts.cu", text + numbers.text() + finished), numbers.scalar_args


def _epilogue_text(epilogue: Epilogue | None, numbers: Numbers, dtype: DType) -> str:
    """The kernel text that is applied to a finished sum."""
    return NOTHING if epilogue is None else epilogue.text(numbers, dtype)


def contract(
    problems: Sequence[Problem], epilogue: Epilogue | None = None, tf32: bool = False, tiling: Tiling | None = None
) -> tuple[list[Contract | Mma], bool]:
    """The kernels that together compute one result; True if they swap a and b. ``epilogue``: if the contraction is
    split, it is left to the kernel that adds the parts. ``tf32``: f32 only. ``tiling``: by default the one with the
    least modelled time.

    The problem with the longest sum decides the tile and split of all. So problems of one form share their code.
    """
    longest, cores, swapped = deciding(problems, tf32)
    if swapped:
        problems = [p.turned() for p in problems]
    chosen = tiling or tiling_of(longest, cores)
    tile, split = chosen.tile, chosen.split
    stored = longest.c.dtype if split == 1 else longest.c.dtype.computed
    divided = [replace(p, split=split, c=replace(p.c, dtype=stored)) for p in problems]
    fused = epilogue if split == 1 else None
    if cores == "16 bits":
        return [Mma(p, tile, fused) for p in divided], swapped
    return [Contract(p, tile, fused, tf32) for p in divided], swapped


def deciding(problems: Sequence[Problem], tf32: bool) -> tuple[Problem, Cores, bool]:
    """The problem with the longest sum, which decides the tiling of all, as the kernels compute it; the tensor cores
    that they use; True if they swap a and b."""
    longest = max(problems, key=lambda p: p.count("k"))
    swapped = longest.dense_along_m()
    as_computed = [p.turned() for p in problems] if swapped else problems
    cores: Cores = "16 bits" if all(map(_on_tensor_cores, as_computed)) else "tf32" if tf32 else None
    return longest.turned() if swapped else longest, cores, swapped


def _on_tensor_cores(problem: Problem) -> bool:
    a, b = problem.a, problem.b
    if a.dtype is not b.dtype or a.dtype not in (DType.BF16, DType.F16):
        return False
    left: Group = "k" if problem.along_k("m") else "m"
    right: Group = "k" if problem.along_k("n") else "n"
    return problem.runs("a", left, _COPY_ELEMENTS) and problem.runs("b", right, _COPY_ELEMENTS)
