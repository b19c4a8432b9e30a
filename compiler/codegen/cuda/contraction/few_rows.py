"""Products of few rows with a matrix of weights, as in the generation of text, as fast as memory gives the weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import ClassVar, Final

from dslc.compiler.codegen.cuda.contraction.epilogue import NOTHING, F32Epilogue
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, CodeWithArgs, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.products.linear import FEW_ROWS

#: Any kernel reads fewer in next to no time; this one then only pays if it saves the launch of the pointwise node that
#: reads the product.
_FEWEST_WEIGHTS: Final = 1 << 16
_MOST_WEIGHTS: Final = 1 << 40
_THREADS: Final = 256
_BUSY_WARPS: Final = 16 * H200.multiprocessors  # so that enough bytes are under way
_MOST_COLUMNS: Final = 4  # of a warp
_UNDER_WAY: Final = 12  # loads of a thread
_DTYPES: Final = (DType.BF16, DType.F16, DType.F32)


@dataclass(frozen=True)
class FewRows(CodeWithArgs):
    """``k(a, b, others..., c, numbers)``: a ``[rows, inner]`` times the transpose of b ``[columns, inner]``, in f32.
    ``epilogue``: applied to a sum and the others, in f32, before it is rounded to ``result``."""

    is_of_few_rows: ClassVar = True  # which the pass `few_rows_epilogue` asks

    dtype: DType
    result: DType
    rows: int
    columns: int
    inner: int
    epilogue: F32Epilogue | None = None

    @property
    def each(self) -> int:
        """Elements that a thread loads at once: 16 bytes, less if a row is no multiple of them."""
        return gcd(16 // self.dtype.itemsize, self.inner)

    @property
    def per_warp(self) -> int:
        """Columns of a warp: more than one if there are more columns than busy warps need."""
        found = 1
        while found * self.rows < FEW_ROWS and found < _MOST_COLUMNS and self.columns >= 4 * found * _BUSY_WARPS:
            found *= 2
        return found

    @property
    def down(self) -> int:
        """Warps that share a column: more than one if there are few columns, as long as each warp has a whole turn to
        add."""
        found, turn = 1, WARP * self.each
        while found < _THREADS // WARP and self.columns * found < _BUSY_WARPS and 2 * found * turn <= self.inner:
            found *= 2
        return found

    @property
    def geometry(self) -> Geometry:
        columns = _THREADS // WARP // self.down * self.per_warp
        return Geometry((-(-self.columns // columns), 1, 1), (_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        turns = -(-self.inner // (WARP * self.down * self.each))
        ahead = min(turns, max(1, _UNDER_WAY // self.per_warp))
        text = f"using T = {C_TYPES[self.dtype]};\nusing C = {C_TYPES[self.result]};\n"
        text += constants(
            THREADS=_THREADS, ROWS=self.rows, N=self.columns, K=self.inner, COLS=self.per_warp, DOWN=self.down,
            AHEAD=ahead, EACH=self.each,
        )  # fmt: skip
        numbers = Numbers(FIRST=0)
        finished = NOTHING if self.epilogue is None else self.epilogue.text(numbers, DType.F32)
        return Code("few_rows.cu", text + numbers.text() + finished), numbers.scalar_args


def few_rows(node: Node, last: Node | None = None) -> FewRows | None:
    """The kernel of a product of matrices of at most 8 rows, whose weights lie along their sum; None for others. Rows
    of many weights are whole loads of 16 bytes.

    ``last``: the pointwise node that reads the product, which the kernel computes, too; None if it cannot."""
    if node.op.name != "matmul" or bool_attr(node.attrs, "transpose_a") or not bool_attr(node.attrs, "transpose_b"):
        return None
    a, b = node.input_types
    rows, inner = prod(a.ints[:-1]), a.ints[-1]
    if b.rank != 2 or a.dtype is not b.dtype or a.dtype not in _DTYPES or not 0 < rows <= FEW_ROWS:
        return None
    few = prod(b.ints) < _FEWEST_WEIGHTS
    if prod(b.ints) >= _MOST_WEIGHTS or (last is None if few else inner % (16 // a.dtype.itemsize)):
        return None
    result = node.types[0].dtype
    if last is None:
        return FewRows(a.dtype, result, rows, b.ints[0], inner) if result in _DTYPES else None
    epilogue, result = F32Epilogue.of(last), last.types[0].dtype
    if epilogue is None or result not in _DTYPES:
        return None
    return FewRows(a.dtype, result, rows, b.ints[0], inner, epilogue)
