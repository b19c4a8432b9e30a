"""Rows added by index: to zeros, or to a tensor, whose place the result takes if nothing reads the tensor later."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dslc.compiler.codegen.cpu.contraction.pack import Fill, blocks, each_vector
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec, tasks_of
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code
from dslc.compiler.codegen.cpu.ops.indexing import ScatterAdd, Table
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.pointwise import filled
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType


@described("Start", "dtype count")
@dataclass(frozen=True)
class Start(KernelSpec):
    """``k(source, target)``: copies ``count`` elements, unless both are the same memory."""

    dtype: DType
    count: int

    @property
    def tasks(self) -> int:
        return tasks_of(Fill(self.dtype, self.count))

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        source, target = code.argument(0), code.argument(1)
        with code.b.if_then(code.b.icmp_signed("!=", *(code.b.ptrtoint(x, I64) for x in (source, target)))):
            blocks(code, self.count, lambda start, count: each_vector(
                v, count, lambda k, n: v.store(v.load(source, code.add(start, k), n), target, code.add(start, k), n)
            ))  # fmt: skip


@lowers("scatter_rows_add", target="cpu")
def scatter_rows_add(node: Node) -> list[Launch]:
    (rows, ids, *table), [out] = node.inputs, node.types
    length, inner = math.prod(ids.type.ints), math.prod(out.ints[1:])
    spec = ScatterAdd(Table(rows.type.dtype, ids.type.dtype, 1, length, out.ints[0], inner, True))
    start = Start(out.dtype, out.ints[0] * inner)
    first = [Launch(start, tuple(table), node.outputs)] if table else filled(node, 0)
    return [*first, Launch(spec, (rows, ids), node.outputs)]
