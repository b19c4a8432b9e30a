"""logcumsumexp and its gradient as GPU kernels: blocks share a long axis, a team of threads goes along a short one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.ops.running import AlongAxis, logs_text, running
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ops.attrs import bool_attr, int_attr

_THREADS: Final = 128


@dataclass(frozen=True)
class Lines(AlongAxis):
    """``k(given..., y, numbers)``: all [outer, count, inner], combined along ``count``; ``how``: logs or logs_grad."""

    @property
    def team(self) -> int:
        """Threads of a line: one where neighbours are on other lines."""
        return 1 if self.inner >= WARP else min(WARP, 1 << (self.count - 1).bit_length())

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.outer * self.inner * self.team // _THREADS), 1, 1), (_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers(COUNT=self.count, INNER=self.inner)
        numbers.add("LINES", self.outer * self.inner, "i64")
        return numbers

    @property
    def code(self) -> Code:
        text = f"using X = {C_TYPES[self.given]};\nusing T = {C_TYPES[self.dtype]};\n"
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\n"
        narrow = self.outer * self.inner * self.team + _THREADS < I32_ELEMENTS
        text += f"using Line = {'int' if narrow else 'long long'};\n"
        sizes = constants(THREADS=_THREADS, TEAM=self.team, REVERSE=int(self.reverse))
        return Code("lines.cu", text + logs_text(self.dtype, self.how) + self.numbers.text() + sizes)


@lowers("logcumsumexp", target="cuda")
def logcumsumexp(node: Node) -> list[Launch]:
    return _logs(node, "logs", bool_attr(node.attrs, "reverse"))


@lowers("logcumsumexp_grad", target="cuda")
def logcumsumexp_grad(node: Node) -> list[Launch]:
    return _logs(node, "logs_grad", not bool_attr(node.attrs, "reverse"))


def _logs(node: Node, how: str, reverse: bool) -> list[Launch]:
    shape, axis, dtype = node.types[0].ints, int_attr(node.attrs, "axis"), node.types[0].dtype
    if not prod(shape):
        return []
    sizes = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    return running(node, how, reverse) or [Launch(Lines(dtype, dtype, how, reverse, *sizes), node.inputs, node.outputs)]
