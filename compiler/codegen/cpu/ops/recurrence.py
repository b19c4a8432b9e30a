"""The op recurrence on the CPU: a lane for each of several lines, along which it goes one element after the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code, Reg
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr


@described("Recurrence", "dtype outer count inner reverse late")
@dataclass(frozen=True, slots=True)
class Recurrence(KernelSpec):
    """``k(a, b, y)``: all [outer, count, inner], lines along ``count``. A task is a vector of lines: neighbours along
    ``inner``, or along ``outer`` if inner is 1. The order of the sums is that of the elements."""

    dtype: DType
    outer: int
    count: int
    inner: int
    reverse: bool
    late: bool

    @property
    def groups(self) -> int:
        """Groups of lines at equal distances."""
        return self.outer if self.inner > 1 else 1

    @property
    def lines(self) -> int:
        """Of a group."""
        return self.inner if self.inner > 1 else self.outer

    @property
    def lanes(self) -> int:
        return VECTOR_BYTES // self.dtype.computed.itemsize

    @property
    def tasks(self) -> int:
        return self.groups * -(-self.lines // self.lanes) if self.count else 0

    def emit(self, code: Code) -> None:
        lanes, lines = self.lanes, self.lines
        with code.loop(code.last, code.first) as task:
            group, number = code.unravel(task, (self.groups, -(-lines // lanes)))
            base = code.mul(group, self.count * self.inner)
            whole, rest = divmod(lines, lanes)
            first = code.add(base, code.mul(number, lanes * self._apart))
            if whole and rest:
                last = code.b.icmp_signed("==", code.int(number), code.int(whole))
                with code.b.if_else(last) as (then, otherwise):
                    with then:
                        self._lines(code, first, rest)
                    with otherwise:
                        self._lines(code, first, lanes)
            else:
                self._lines(code, first, lanes if whole else rest)

    @property
    def _apart(self) -> int:
        """Elements from a line to the next of its group."""
        return 1 if self.inner > 1 else self.count

    def _lines(self, code: Code, first: Any, lanes: int) -> None:
        """As many lines as lanes, of which the first begins at element ``first``."""
        a, b, y = (code.argument(i) for i in range(3))
        values, dtype = Values(code, lanes), self.dtype.computed
        carried = [values.const(0.0, dtype).value]
        with code.loop(self.count, carried=carried) as turn:
            at = code.b.sub(code.int(self.count - 1), code.int(turn)) if self.reverse else turn
            place = code.add(first, code.mul(at, self.inner))
            factor, term = (Reg(values.load(p, place, self._apart, self.dtype).value, dtype) for p in (a, b))
            old = Reg(carried[0], dtype)
            if not self.late:
                old = values.combine("prod", factor, old)
            found = values.combine("sum", old, term)
            carried[0] = (values.combine("prod", factor, found) if self.late else found).value
            values.store(values.convert(found, self.dtype), y, place, self._apart)


@lowers("recurrence", target="cpu")
def recurrence(node: Node) -> list[Launch]:
    shape, axis = node.types[0].ints, int_attr(node.attrs, "axis")
    if not prod(shape):
        return []
    flags = bool_attr(node.attrs, "reverse"), bool_attr(node.attrs, "late")
    spec = Recurrence(node.types[0].dtype, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), *flags)
    return [Launch(spec, node.inputs, node.outputs)]
