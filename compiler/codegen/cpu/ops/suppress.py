"""The op suppress on the CPU: a task for each line of elements, which go one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, Reg
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr


@described("Suppress", "dtype lines count limit")
@dataclass(frozen=True, slots=True)
class Suppress(KernelSpec):
    """``k(overlap, keep)``: overlap [lines, count, count], keep [lines, count]."""

    dtype: DType
    lines: int
    count: int
    limit: float

    @property
    def tasks(self) -> int:
        return self.lines

    def emit(self, code: Code) -> None:
        (overlap, keep), one, n = (code.argument(i) for i in range(2)), Values(code, 1), self.count
        limit = one.const(self.limit, self.dtype)
        with code.loop(code.last, code.first) as line:
            first = code.mul(line, n)
            with code.loop(n) as i:
                one.store(one.const(True, DType.B1), keep, code.add(first, i), 1)
            with code.loop(n) as i:
                own = code.add(first, i)
                with code.b.if_then(one.load(keep, own, 0, DType.B1).value):
                    row = code.mul(own, n)
                    with code.loop(n, code.add(i, 1)) as j:
                        place = code.add(first, j)
                        removed = one.compare(">", one.load(overlap, code.add(row, j), 0, self.dtype), limit)
                        still = code.b.and_(one.load(keep, place, 0, DType.B1).value, code.b.not_(removed))
                        one.store(Reg(still, DType.B1), keep, place, 1)


@lowers("suppress", target="cpu")
def suppress(node: Node) -> list[Launch]:
    [overlap], shape = node.input_types, node.types[0].ints
    spec = Suppress(overlap.dtype, prod(shape[:-1]), shape[-1], float_attr(node.attrs, "limit"))
    return [Launch(spec, node.inputs, node.outputs)]
