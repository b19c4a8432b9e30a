"""The sums over the paths of ctc, their gradient, and weighted sums over paths, as GPU kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr

_MOST_THREADS: Final = 512


@described("Paths", "back dtype times_dtype states_dtype rows times states file")
@dataclass(frozen=True)
class Paths(CppKernel):
    """``k(x, skips, times, states, loss, sums)``, or ``k(x, skips, times, states, loss, sums, dy, dx, rest)``: a block
    for each row."""

    back: bool
    dtype: DType
    times_dtype: DType
    states_dtype: DType
    rows: int
    times: int
    states: int
    file: str = "paths.cu"

    @property
    def threads(self) -> int:
        return _threads(self.states)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.rows, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return (
            f"#define BACK {int(self.back)}\nusing T = {C_TYPES[self.dtype]};\n"
            f"using SUM = {C_TYPES[self.dtype.computed]};\nusing TIMES_INT = {C_TYPES[self.times_dtype]};\n"
            f"using STATES_INT = {C_TYPES[self.states_dtype]};\n"
            + constants(THREADS=self.threads, TIMES=self.times, STATES=self.states)
        )


@described("PathScan", "back dtype rows times states file")
@dataclass(frozen=True)
class PathScan(CppKernel):
    """``k(x, stay, one, two, y)``: a block for each row."""

    back: bool
    dtype: DType
    rows: int
    times: int
    states: int
    file: str = "path_scan.cu"

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.rows, 1, 1), (_threads(self.states), 1, 1))

    def head(self) -> str:
        return f"using T = {C_TYPES[self.dtype]};\n" + constants(
            BACK=int(self.back), THREADS=_threads(self.states), TIMES=self.times, STATES=self.states
        )


def _threads(states: int) -> int:
    return min(_MOST_THREADS, -(-states // 32) * 32)


def _spec(node: Node, back: bool) -> Paths:
    x, _, times, states = node.input_types[:4]
    rows, lengths, count = x.ints
    return Paths(back, x.dtype, times.dtype, states.dtype, rows, lengths, count)


@lowers("path_loss", target="cuda")
def path_loss(node: Node) -> list[Launch]:
    return [Launch(_spec(node, False), node.inputs, node.outputs)]


@lowers("path_loss_grad", target="cuda")
def path_loss_grad(node: Node) -> list[Launch]:
    spec = _spec(node, True)
    rest = Scratch(0, 2 * spec.rows * spec.states * spec.dtype.computed.itemsize)
    return [Launch(spec, node.inputs, (*node.outputs, rest))]


@lowers("path_scan", target="cuda")
def path_scan(node: Node) -> list[Launch]:
    x = node.input_types[0]
    rows, times, states = x.ints
    return [Launch(PathScan(bool_attr(node.attrs, "back"), x.dtype, rows, times, states), node.inputs, node.outputs)]
