"""Scatters of few elements to each long line: the line is copied, or filled, and then only their places are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.scatter.scatter_problem import ScatterProblem
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import combining
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Combine
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType

_THREADS: Final = 256
_MOST: Final = 64  # elements of a line, which each of them looks at
_SMALL: Final = 1 << 18  # looks of all results at all elements, that take no longer than another launch
_COMPUTED: Final = (DType.F32, DType.F64, DType.I32, DType.I64)


@dataclass(frozen=True)
class FewScatter(Numbered):
    """``k([x,] src, ids, y, numbers)``: y [outer, count, inner] combined with src [outer, length, inner]."""

    dtype: DType
    ids: DType
    how: Combine
    outer: int
    length: int
    inner: int
    count: int
    x: bool
    lost: int | None

    @property
    def all(self) -> int:
        return self.outer * self.length * self.inner

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.all // _THREADS), 1, 1), (_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers(ALL=self.all, COUNT=self.count, LOST=self.lost or 0)
        numbers.divisor("LENGTH", self.length)
        numbers.divisor("INNER", self.inner)
        return numbers

    @property
    def code(self) -> Code:
        filler = "SUM(__uint_as_float(0x7FC00000u))" if self.dtype.is_float else "SUM(s.LOST)"
        fills = self.dtype.is_float or self.lost is not None
        text = combining(self.dtype, self.how) + f"using I = {C_TYPES[self.ids]};\n"
        text += f"#define FILL(to) store(to, {filler})\n"
        text += f"#define ARGUMENT_X {'const T *__restrict__ x, ' if self.x else ''}\n"
        text += f"#define FIRST(i) {'wide(x[i])' if self.x else 'NEUTRAL'}\n"
        return Code("scatter_few.cu", text + self.numbers.text() + constants(THREADS=_THREADS, FILLS=int(fills)))


def few_scatter(problem: ScatterProblem, how: Combine, start: Launch) -> list[Launch] | None:
    """The launches of a scatter by the combination ``how``, after ``start``, which copies or fills; None if lines have
    many elements, or the result has few."""
    outer, length, inner, count = problem.sizes
    if length > _MOST or count < 2 * length or outer * count * inner * length <= _SMALL:
        return None
    if problem.dtype.computed not in _COMPUTED or outer * max(count, length) * inner >= I32_ELEMENTS - _THREADS:
        return None
    assert problem.source is not None
    spec = FewScatter(*problem.dtypes, how, *problem.sizes, bool(problem.x), problem.lost)
    return [start, Launch(spec, (*problem.x, problem.source, problem.ids), (problem.out,))]
