"""The op recurrence as a GPU kernel: a thread or a warp goes along each line, if there are many or they are short."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.ops.running import running
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_THREADS: Final = 128


@described("Recurrence", "dtype outer count inner reverse late file")
@dataclass(frozen=True)
class Recurrence(CppKernel):
    """``k(a, b, y)``: all [outer, count, inner], lines along ``count``. A thread for each line if neighbours lie next
    to each other, else a warp."""

    dtype: DType
    outer: int
    count: int
    inner: int
    reverse: bool
    late: bool
    file: str = "recurrence.cu"

    @property
    def team(self) -> int:
        return 1 if self.inner >= WARP else WARP

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.outer * self.inner * self.team // _THREADS), 1, 1), (_THREADS, 1, 1))

    def head(self) -> str:
        flags = constants(
            THREADS=_THREADS, TEAM=self.team, INNER=self.inner, REVERSE=int(self.reverse), LATE=int(self.late)
        )
        long = f"constexpr long long LINES = {self.outer * self.inner}, COUNT = {self.count};\n"
        return f"using T = {C_TYPES[self.dtype]};\nusing SUM = {C_TYPES[self.dtype.computed]};\n{flags}{long}"


@lowers("recurrence", target="cuda")
def recurrence(node: Node) -> list[Launch]:
    shape, axis = node.types[0].ints, int_attr(node.attrs, "axis")
    if not prod(shape):
        return []
    flags = bool_attr(node.attrs, "reverse"), bool_attr(node.attrs, "late")
    shared = running(node, "late" if flags[1] else "plain")
    if shared is not None:
        return shared
    spec = Recurrence(node.types[0].dtype, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), *flags)
    return [Launch(spec, node.inputs, node.outputs)]
