"""The op suppress as a GPU kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import CppKernel, constants
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node

_MOST_THREADS: Final = 1024


@described("Suppress", "lines count file")
@dataclass(frozen=True)
class Suppress(CppKernel):
    """``k(over, keep)``: over [lines, count, count], keep [lines, count]; a block goes through the elements of a line,
    each of which its threads compare with all later ones."""

    lines: int
    count: int
    file: str = "suppress.cu"

    @property
    def threads(self) -> int:
        return min(_MOST_THREADS, 32 * -(-self.count // 32))

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return constants(THREADS=self.threads, COUNT=self.count)


@lowers("suppress", target="cuda")
def suppress(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    return [Launch(Suppress(prod(shape[:-1]), shape[-1]), node.inputs, node.outputs)] if prod(shape) else []
