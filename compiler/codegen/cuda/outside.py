"""A kernel that looks for values outside a range; a session checks inputs with it that lie on the GPU."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, constants
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.reserved import CHECK_THREADS


def outside(dtype: DType) -> Code:
    """``k(values, flag, count, low, last)``: ``outside.cu`` for ``count`` values of an integer dtype; ``flag`` is a
    u32, ``count``, ``low`` and ``last`` are i64."""
    text = f"using T = {C_TYPES[dtype]};\n"
    return Code("outside.cu", text + constants(THREADS=CHECK_THREADS, BEYOND=int(dtype is DType.U64)))
