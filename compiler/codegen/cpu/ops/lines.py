"""Kernels on the CPU that go along lines: a lane for each of several lines, one element after the other."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr


class Lines(KernelSpec):
    """All arguments are [outer, count, inner], lines along ``count``. A task is a vector of lines: neighbours along
    ``inner``, or along ``outer`` if inner is 1."""

    __slots__ = ()
    dtype: DType
    outer: int
    count: int
    inner: int
    reverse: bool

    @property
    def groups(self) -> int:
        """Groups of lines at equal distances."""
        return self.outer if self.inner > 1 else 1

    @property
    def lines(self) -> int:
        """Lines of a group."""
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
            first = code.add(base, code.mul(number, lanes * self.apart))
            if whole and rest:
                last = code.b.icmp_signed("==", code.int(number), code.int(whole))
                with code.b.if_else(last) as (then, otherwise):
                    with then:
                        self.along(code, first, rest)
                    with otherwise:
                        self.along(code, first, lanes)
            else:
                self.along(code, first, lanes if whole else rest)

    @property
    def apart(self) -> int:
        """Elements from a line to the next of its group."""
        return 1 if self.inner > 1 else self.count

    def place(self, code: Code, first: Any, turn: Any) -> Any:
        """Where the element of a turn is, of the line that begins at ``first``."""
        at = code.b.sub(code.int(self.count - 1), code.int(turn)) if self.reverse else turn
        return code.add(first, code.mul(at, self.inner))

    @abstractmethod
    def along(self, code: Code, first: Any, lanes: int) -> None:
        """Goes along as many lines as lanes, of which the first begins at element ``first``."""


def sizes_of(node: Node) -> tuple[int, int, int]:
    """Elements before the attribute ``axis`` of a node, along it and after it."""
    shape, axis = node.types[0].ints, int_attr(node.attrs, "axis")
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
