"""The op suppress as a GPU kernel."""

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
from dslc.compiler.ops.attrs import float_attr

_MOST_THREADS: Final = 1024


@described("Suppress", "dtype lines count limit file")
@dataclass(frozen=True)
class Suppress(CppKernel):
    """``k(overlap, keep)``: overlap [lines, count, count], keep [lines, count]; a block goes through the elements of a
    line, each of which its threads compare with all later ones."""

    dtype: DType
    lines: int
    count: int
    limit: float
    file: str = "suppress.cu"

    @property
    def threads(self) -> int:
        return min(_MOST_THREADS, 32 * -(-self.count // 32))

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        computed = C_TYPES[self.dtype.computed]
        text = f"using T = {C_TYPES[self.dtype]};\n#define LIMIT {computed}({self.limit!r})\n"
        return text + constants(THREADS=self.threads, COUNT=self.count)


@lowers("suppress", target="cuda")
def suppress(node: Node) -> list[Launch]:
    [overlap], shape = node.input_types, node.types[0].ints
    spec = Suppress(overlap.dtype, prod(shape[:-1]), shape[-1], float_attr(node.attrs, "limit"))
    return [Launch(spec, node.inputs, node.outputs)] if prod(shape) else []
