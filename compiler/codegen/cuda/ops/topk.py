"""The op topk as a GPU kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_MAX_WARP_LINE: Final = 256  # most elements of a line that one warp handles


def key_of(dtype: DType) -> str:
    """The type KEY and the function ``key``: the number by which elements of a type T are compared."""
    key = dtype.computed if dtype.is_float or dtype is DType.U64 else DType.I64
    found = "wide(x)" if dtype.is_float else "x"
    return f"using KEY = {C_TYPES[key]};\n__device__ __forceinline__ KEY key(T x) {{ return {found}; }}\n"


@described("TopK", "dtype before count after k largest file")
@dataclass(frozen=True)
class TopK(CppKernel):
    """``k(x, values, places)``: the first ``k`` along the middle axis of x [before, count, after], with one block per
    line.

    It reads each line ``k`` times, so it suits small ``k``.
    """

    dtype: DType
    before: int
    count: int
    after: int
    k: int
    largest: bool
    file: str = "topk.cu"

    @property
    def threads(self) -> int:
        return 32 if self.count <= _MAX_WARP_LINE else 256

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.before * self.after, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return (
            f"using T = {C_TYPES[self.dtype]};\n"
            + key_of(self.dtype)
            + constants(THREADS=self.threads, COUNT=self.count, AFTER=self.after, K=self.k, LARGEST=int(self.largest))
        )


@lowers("topk", target="cuda")
def topk(node: Node) -> list[Launch]:
    [x], axis = node.input_types, int_attr(node.attrs, "axis")
    spec = TopK(
        x.dtype, prod(x.ints[:axis]), x.ints[axis], prod(x.ints[axis + 1 :]), int_attr(node.attrs, "k"),
        bool_attr(node.attrs, "largest"),
    )  # fmt: skip
    return [Launch(spec, node.inputs, node.outputs)]
