"""The op literal: values stored in the object are copied into their tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code, lane_type
from dslc.compiler.codegen.cpu.object.compile import emit, tasks
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType

_GRAIN: Final = 8192  # elements per task


@described("Table", "dtype values")
@dataclass(frozen=True, slots=True)
class Table:
    """The values in row-major order, rounded to ``dtype``."""

    dtype: DType
    values: tuple[float, ...]


@tasks.register
def _(spec: Table) -> int:
    return -(-len(spec.values) // _GRAIN)


@emit.register
def _(spec: Table, code: Code) -> None:
    element, count = lane_type(spec.dtype), len(spec.values)
    type = ir.ArrayType(element, count)
    table = ir.GlobalVariable(code.module, type, code.function.name + "_values")
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(type, [ir.Constant(element, v) for v in spec.values])
    target, one = code.argument(0), Values(code, 1)
    with code.loop(code.last, code.first) as task:
        start = code.mul(task, _GRAIN)
        with code.loop(code.least(code.add(start, _GRAIN), count), start) as i:
            place = code.b.gep(table, [I64(0), code.int(i)], source_etype=type)
            one.store_value(code.b.load(place, typ=element), spec.dtype, target, i, 1)


def literal(node: Node) -> list[Launch]:
    values, type = node.attrs["values"], node.types[0]
    assert isinstance(values, tuple)
    numbers = tuple(v for v in values if isinstance(v, float))
    assert len(numbers) == len(values)
    return [Launch(Table(type.dtype, numbers), (), node.outputs)]


LOWERED: Final = {"literal": literal}
