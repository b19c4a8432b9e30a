"""LLVM IR that selects the group of arguments on which a block works: constant tables and pointers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.lanes import I8, I32, Lanes, Writer
from dslc.compiler.ir.types import DType

_CONSTANT: Final = 4  # the address space
_MAX_TABLE: Final = 1 << 15  # bytes of a table: all constants of a kernel have 64 KiB
_LARGEST: Final = 2**31 - 1


def placed(*counts: int) -> Writer:
    """``placed(x)``: the group that contains x, and the offset of x there; group i has ``counts[i]`` elements.

    A table has the group of each x, if it fits into constant memory; else the groups' starts are searched by halving.
    """
    starts = [0, *accumulate(counts)][: len(counts)]
    kind, size = (I8, 1) if len(counts) <= 128 else (I32, 4)
    groups = (
        [group for group, count in enumerate(counts) for _ in range(count)] if sum(counts) * size <= _MAX_TABLE else []
    )

    def write(builder: Any, x: Lanes) -> Lanes:
        group = _looked_up(builder, groups, kind, x.value) if groups else _searched(builder, starts, x.value)
        return Lanes(DType.I32, [group, builder.sub(x.value, _looked_up(builder, starts, I32, group))])

    return write


def _searched(builder: Any, starts: Sequence[int], x: Any) -> Any:
    """The last group that starts at x or before."""
    step = 1 << max(0, len(starts) - 1).bit_length()
    padded = [*starts, *[_LARGEST] * (step - len(starts))]
    found = I32(0)
    while step > 1:
        step //= 2
        later = builder.add(found, I32(step))
        reached = builder.icmp_signed(">=", x, _looked_up(builder, padded, I32, later))
        found = builder.select(reached, later, found)
    return found


def chosen(*numbers: int) -> Writer:
    """``chosen(x)``: ``numbers[x]``."""
    return lambda builder, x: Lanes(DType.I32, [_looked_up(builder, numbers, I32, x.value)])


def pointer(first: int, step: int, count: int, total: int) -> Writer:
    """``pointer(x)``: argument ``first + x * step`` of the kernel's ``total``, for x below ``count``."""

    def write(builder: Any, x: Lanes) -> Any:
        function = builder.function
        pointers = function.args[-total:][first::step][:count]
        assert len(pointers) == count
        whole = function.append_basic_block("whole")
        blocks = [function.append_basic_block(f"take{i}") for i in range(count)]
        switch = builder.switch(x.value, blocks[0])
        for i, block in enumerate(blocks):
            if i:
                switch.add_case(I32(i), block)
            builder.position_at_end(block)
            builder.branch(whole)
        builder.position_at_end(whole)
        found = builder.phi(pointers[0].type)
        for value, block in zip(pointers, blocks):
            found.add_incoming(value, block)
        return found

    return write


def _looked_up(builder: Any, numbers: Sequence[int], type: Any, at: Any) -> Any:
    """Element ``at`` of a constant table, as i32."""
    table = ir.Constant(ir.ArrayType(type, len(numbers)), list(numbers))
    name = "table_" + hashlib.sha256(repr((str(type), list(numbers))).encode()).hexdigest()[:16]
    memory = builder.module.globals.get(name)
    if memory is None:
        memory = ir.GlobalVariable(builder.module, table.type, name, addrspace=_CONSTANT)
        memory.linkage, memory.global_constant, memory.initializer = "internal", True, table
    value = builder.load(builder.gep(memory, [I32(0), at]))
    return value if type == I32 else builder.zext(value, I32)
