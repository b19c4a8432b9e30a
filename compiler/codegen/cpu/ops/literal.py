"""The op literal: many values are stored in the object and copied into their tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code, lane_type
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.literal import as_number

_TASK_ELEMENTS: Final = 8192  # elements per task


@described("Table", "dtype values")
@dataclass(frozen=True, slots=True)
class LiteralTable(KernelSpec):
    """The values in row-major order, rounded to ``dtype``."""

    dtype: DType
    values: tuple[float | int | bool, ...]

    @property
    def tasks(self) -> int:
        return -(-len(self.values) // _TASK_ELEMENTS)

    def emit(self, code: Code) -> None:
        element, count = lane_type(self.dtype), len(self.values)
        type = ir.ArrayType(element, count)
        table = ir.GlobalVariable(code.module, type, code.function.name + "_values")
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(type, [ir.Constant(element, v) for v in self.values])
        target, one = code.argument(0), Values(code, 1)
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, _TASK_ELEMENTS)
            with code.loop(code.least(code.add(start, _TASK_ELEMENTS), count), start) as i:
                place = code.b.gep(table, [I64(0), code.int(i)], source_etype=type)
                one.store_value(code.b.load(place, typ=element), self.dtype, target, i, 1)


@lowers("literal", target="cpu")
def literal(node: Node) -> list[Launch]:
    """Few values are a region, which selects them by index."""
    few = pointwise.literal(node)
    if few is not None:
        return few
    values, type = node.attrs["values"], node.types[0]
    assert isinstance(values, tuple)
    return [Launch(LiteralTable(type.dtype, tuple(as_number(v) for v in values)), (), node.outputs)]
