"""Sums of the elements of a line that one warp does not hold: blocks of many threads add integers in shared memory.

The sums are those of ``scatter_atomic.py``, which no order changes, so they are at least as exact as in f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.ops.scatter.scatter_atomic import ZEROS, sum_shift
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import combining
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

_THREADS: Final = 512
_HELD: Final = 8192  # results of a block, three of which are on a processor of a large GPU at once
_RESULT_BYTES: Final = 8 + 1  # the sum and an exponent
_AHEAD: Final = 4  # vectors of a thread under way


@dataclass(frozen=True)
class BlockScatter(Numbered):
    """``k(src, ids, y, numbers)``: sums of ``lines`` times ``length`` elements with ids below ``count``."""

    dtype: DType
    ids: DType
    lines: int
    length: int
    count: int

    @property
    def held(self) -> int:
        """Results of a block."""
        return min(_HELD, -(-self.count // 32) * 32)

    @property
    def geometry(self) -> Geometry:
        blocks = self.lines * -(-self.count // self.held)
        return Geometry((blocks, 1, 1), (_THREADS, 1, 1), _RESULT_BYTES * self.held)

    @property
    def numbers(self) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, SHIFT=sum_shift(self.length))

    @property
    def code(self) -> Code:
        vector = min(power_of_two(self.length), LOAD_BYTES // max(self.ids.itemsize, self.dtype.itemsize))
        text = combining(self.dtype, "sum") + f"using I = {C_TYPES[self.ids]};\n" + self.numbers.text()
        sizes = constants(THREADS=_THREADS, HELD=self.held, VEC=vector, AHEAD=_AHEAD, ZEROS=ZEROS.get(self.dtype, 0))
        return Code("scatter_block.cu", text + sizes)
