"""The op recurrence on the CPU, in the order of the elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, Reg
from dslc.compiler.codegen.cpu.ops.lines import Lines, sizes_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr


@described("Recurrence", "dtype outer count inner reverse late")
@dataclass(frozen=True, slots=True)
class Recurrence(Lines):
    """``k(a, b, y)``."""

    dtype: DType  # f32 or f64
    outer: int
    count: int
    inner: int
    reverse: bool
    late: bool

    def along(self, code: Code, first: Any, lanes: int) -> None:
        a, b, y = (code.argument(i) for i in range(3))
        values, dtype = Values(code, lanes), self.dtype
        carried = [values.const(0.0, dtype).value]
        with code.loop(self.count, carried=carried) as turn:
            place = self.place(code, first, turn)
            factor, term = (values.load(p, place, self.apart, dtype) for p in (a, b))
            old = Reg(carried[0], dtype)
            if not self.late:
                old = values.combine("prod", factor, old)
            found = values.combine("sum", old, term)
            carried[0] = (values.combine("prod", factor, found) if self.late else found).value
            values.store(found, y, place, self.apart)


@lowers("recurrence", target="cpu")
def recurrence(node: Node) -> list[Launch]:
    if not prod(node.types[0].ints):
        return []
    flags = bool_attr(node.attrs, "reverse"), bool_attr(node.attrs, "late")
    return [Launch(Recurrence(node.types[0].dtype, *sizes_of(node), *flags), node.inputs, node.outputs)]
