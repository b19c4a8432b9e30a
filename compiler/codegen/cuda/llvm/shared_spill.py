"""LLVM IR that spills values of a thread to shared memory if they exceed its registers."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.lanes import I8, I32, Lanes, Writer, llvm_type, vector_of
from dslc.compiler.codegen.cuda.llvm.math import device
from dslc.compiler.ir.types import DType

_SHARED: Final = 3  # the address space
_NAME: Final = "kept"
_WORD_BYTES: Final = 16  # bytes: neighbouring threads have adjacent words, which avoids bank conflicts


def spill(dtype: DType, count: int, threads: int, first: int) -> Writer:
    """``spill(value)`` stores ``count`` lanes per thread, from byte ``first`` on, for a block of ``threads``."""

    def write(builder: Any, x: Lanes) -> None:
        lanes = x.spread(count)
        for i, place in enumerate(_places(builder, dtype, count, threads, first)):
            word = vector_of(builder, lanes[i * place.count : (i + 1) * place.count])
            builder.store(word, place.pointer, align=place.bytes)

    return write


def reload(dtype: DType, count: int, threads: int, first: int) -> Writer:
    """Loads the lanes that ``spill`` stored with the same parameters."""

    def write(builder: Any) -> Lanes:
        lanes: list[Any] = []
        for place in _places(builder, dtype, count, threads, first):
            word = builder.load(place.pointer, align=place.bytes)
            several = range(place.count) if place.count > 1 else ()
            lanes += [builder.extract_element(word, I32(i)) for i in several] or [word]
        return Lanes(dtype, lanes)

    return write


class _Place:
    """The address of ``count`` lanes of a thread, ``bytes`` in total."""

    def __init__(self, pointer: Any, count: int, bytes: int) -> None:
        self.pointer, self.count, self.bytes = pointer, count, bytes


def _places(builder: Any, dtype: DType, count: int, threads: int, first: int) -> list[_Place]:
    each = min(count, _WORD_BYTES // dtype.itemsize)
    assert count % each == 0
    size, type = each * dtype.itemsize, llvm_type(dtype)
    pointer = ir.PointerType(ir.VectorType(type, each) if each > 1 else type, _SHARED)
    thread = device(builder, "llvm.nvvm.read.ptx.sreg.tid.x", I32)
    mine = builder.add(builder.mul(thread, I32(size)), I32(first))
    found = []
    for i in range(count // each):
        at = builder.add(mine, I32(i * threads * size))
        found.append(_Place(builder.bitcast(builder.gep(_memory(builder), [I32(0), at]), pointer), each, size))
    return found


def _memory(builder: Any) -> Any:
    """The block's dynamic shared memory, whose size the launch sets."""
    known = builder.module.globals.get(_NAME)
    if known is not None:
        return known
    memory = ir.GlobalVariable(builder.module, ir.ArrayType(I8, 0), _NAME, addrspace=_SHARED)
    memory.linkage = "external"
    memory.align = _WORD_BYTES
    return memory
