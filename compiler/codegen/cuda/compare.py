"""A kernel that compares two tensors on the GPU; ``dslc tune`` checks candidates with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

THREADS: Final = 256
#: Blocks of a comparison; each writes ``PARTS`` numbers in f64.
BLOCKS: Final = 512
PARTS: Final = 6


@described("Compare", "dtype file")
@dataclass(frozen=True)
class Compare(CppKernel):
    """``k(x, reference, parts, count, unit, far)``: the partial results of ``compare.cu`` for tensors of ``count``
    elements, an i64; ``unit`` and ``far`` are f64. ``parts``: f64[BLOCKS, PARTS]."""

    dtype: DType
    file: str = "compare.cu"

    @property
    def geometry(self) -> Geometry:
        return Geometry((BLOCKS, 1, 1), (THREADS, 1, 1))

    def head(self) -> str:
        wide = "wide(x)" if self.dtype.is_float else "x"
        text = f"using T = {C_TYPES[self.dtype]};\n__device__ __forceinline__ double value(T x) {{ return {wide}; }}\n"
        return text + constants(THREADS=THREADS, PARTS=PARTS)
