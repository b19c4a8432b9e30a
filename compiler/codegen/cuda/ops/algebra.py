"""cholesky, lu and triangular_solve as GPU kernels: a block for each matrix, or for some right sides of one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr

_MOST_THREADS: Final = 1024
_ROWS_OF_WARP: Final = 8  # about so many rows of a matrix are a warp's
_SOLVERS: Final = 512  # threads of a block of right sides, at most


def _threads(wanted: int, most: int) -> int:
    """Whole warps."""
    return min(most, WARP * max(1, -(-wanted // WARP)))


@described("Factors", "dtype lines count file")
@dataclass(frozen=True)
class Factors(CppKernel):
    """``k(x, y)``, or ``k(x, y, order, sign)``: x and y [lines, count, count]."""

    dtype: DType  # f32 or f64
    lines: int
    count: int
    file: str  # cholesky.cu or lu.cu

    @property
    def threads(self) -> int:
        return _threads(self.count * WARP // _ROWS_OF_WARP, _MOST_THREADS)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return f"using T = {C_TYPES[self.dtype]};\n" + constants(THREADS=self.threads, COUNT=self.count)


@described("TriangularSolve", "dtype upper transposed unit lines count columns file")
@dataclass(frozen=True)
class TriangularSolve(CppKernel):
    """``k(t, b, x)``: t [lines, count, count], b and x [lines, count, columns]."""

    dtype: DType  # f32 or f64
    upper: bool
    transposed: bool
    unit: bool
    lines: int
    count: int
    columns: int
    file: str = "triangular_solve.cu"

    @property
    def width(self) -> int:
        """Columns of a block: a power of two."""
        return min(WARP, 1 << (self.columns - 1).bit_length())

    @property
    def threads(self) -> int:
        return _threads(self.width * self.count, _SOLVERS)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines * -(-self.columns // self.width), 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return f"using T = {C_TYPES[self.dtype]};\n" + constants(
            THREADS=self.threads, COUNT=self.count, COLUMNS=self.columns, WIDTH=self.width,
            UPPER=int(self.upper), TRANSPOSED=int(self.transposed), UNIT=int(self.unit),
        )  # fmt: skip


@lowers("cholesky", target="cuda")
def cholesky(node: Node) -> list[Launch]:
    return _factors(node, "cholesky.cu")


@lowers("lu", target="cuda")
def lu(node: Node) -> list[Launch]:
    return _factors(node, "lu.cu")


def _factors(node: Node, file: str) -> list[Launch]:
    shape = node.types[0].ints
    spec = Factors(node.types[0].dtype, prod(shape[:-2]), shape[-1], file)
    return [Launch(spec, node.inputs, node.outputs)] if prod(shape[:-2]) else []


@lowers("triangular_solve", target="cuda")
def triangular_solve(node: Node) -> list[Launch]:
    *lead, count, columns = node.types[0].ints
    upper, transposed, unit = (bool_attr(node.attrs, name) for name in ("upper", "transposed", "unit"))
    spec = TriangularSolve(node.types[0].dtype, upper, transposed, unit, prod(lead), count, columns)
    return [Launch(spec, node.inputs, node.outputs)] if prod(node.types[0].ints) else []
