"""Writes LLVM IR: one kernel function, its loops, and vectors with a fixed number of lanes.

A kernel is ``void k(i8** args, i64 first_task, i64 last_task)``; arguments by value take the place of a pointer.
Vectors are explicit and 64 bytes wide on every level. So the order of every sum is the same on all levels and does not
depend on an optimiser's vectorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from llvmlite import ir

from dslc.compiler.ir.types import DType

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
VOID: Final = ir.VoidType()
POINTER: Final = ir.PointerType()
VECTOR_BYTES: Final = 64
Count: TypeAlias = int  # for Code, whose method ``int`` shadows the name

_TYPES: Final[dict[DType, Any]] = {
    DType.F32: ir.FloatType(),
    DType.F64: ir.DoubleType(),
    DType.I64: I64,
    DType.I32: I32,
    DType.I16: I16,
    DType.I8: I8,
    DType.U64: I64,
    DType.U32: I32,
    DType.U16: I16,
    DType.U8: I8,
    DType.B1: I1,
}
SUPPORTED: Final = frozenset({*_TYPES, DType.F16, DType.BF16})


def lane_type(dtype: DType) -> Any:
    """The type of one value in a register; b1 is i1, floats of 16 bits are f32."""
    return _TYPES[dtype.computed]


def lanes_of(dtype: DType) -> int:
    """Elements of a vector of ``VECTOR_BYTES``."""
    return VECTOR_BYTES // dtype.itemsize


def memory_type(dtype: DType) -> Any:
    """The type of one value in memory; b1 is a byte, floats of 16 bits are i16."""
    return I16 if dtype.is_half else I8 if dtype is DType.B1 else _TYPES[dtype]


@cache
def wide(type: Any, lanes: int) -> Any:
    """A vector type; the type itself for one lane. The same object each time, because it keeps its text."""
    return type if lanes == 1 else ir.VectorType(type, lanes)


@cache
def shuffle_of(*lanes: int) -> Any:
    """The constant that names the lanes which a shuffle picks. The same object each time: large kernels have thousands
    of shuffles with few different constants, and each object writes its text once."""
    return ir.Constant(wide(I32, len(lanes)), list(lanes))


@dataclass(frozen=True, slots=True)
class Reg:
    """A vector (or one value) and its dtype, which tells signed from unsigned integers. A value of f16 or bf16 is an
    f32 that this dtype represents."""

    value: Any
    dtype: DType


class Code:
    """The IR of one kernel under construction. ``registers``: how many vectors of 64 bytes fit the registers, used only
    to choose tiles. ``asked_registers``: whether it was read, so that the IR is for so many registers only."""

    def __init__(self, symbol: str, registers: Count) -> None:
        self._registers = registers
        self.asked_registers = False
        self.module = ir.Module(name=symbol)
        self.function = ir.Function(self.module, ir.FunctionType(VOID, [POINTER, I64, I64]), symbol)
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        self._intrinsics: dict[str, ir.Function] = {}

    @property
    def registers(self) -> Count:
        self.asked_registers = True
        return self._registers

    @property
    def first(self) -> Any:
        return self.function.args[1]

    @property
    def last(self) -> Any:
        return self.function.args[2]

    def finish(self) -> str:
        """The module's text."""
        self.b.ret_void()
        with self.b.goto_block(self.entry):
            self.b.branch(self.function.blocks[1])
        return str(self.module)

    def argument(self, number: Count) -> Any:
        """The pointer ``args[number]``, loaded once at the start."""
        with self.b.goto_block(self.entry):
            place = self.b.gep(self.function.args[0], [I64(number)], source_etype=POINTER)
            return self.b.load(place, typ=POINTER)

    def at_start(self) -> AbstractContextManager[Any]:
        """Emits into the block that runs once, before all loops."""
        made: AbstractContextManager[Any] = self.b.goto_block(self.entry)
        return made

    def scalar(self, number: Count, dtype: DType) -> Any:
        """The number that ``args[number]`` holds in place of a pointer, loaded once at the start."""
        with self.b.goto_block(self.entry):
            place = self.b.gep(self.function.args[0], [I64(number)], source_etype=POINTER)
            return self.b.load(place, typ=lane_type(dtype))

    def local(self, type: Any, count: Count = 1, align: Count | None = None) -> Any:
        """Stack memory for ``count`` values, valid for the whole call."""
        with self.b.goto_entry_block():
            place = self.b.alloca(type, I64(count) if count > 1 else None)
            if align is not None:
                place.align = align
        place.type = POINTER  # llvmlite still gives it a typed pointer
        return place

    def at(self, pointer: Any, index: Any, type: Any) -> Any:
        """The address of element ``index`` of ``type``."""
        return self.b.gep(pointer, [self.int(index)], source_etype=type)

    def int(self, value: Any) -> Any:
        """An i64; Python ints become constants."""
        return I64(value) if isinstance(value, int) else value

    def add(self, x: Any, y: Any) -> Any:
        """x + y of i64 or ints, folded if both are known."""
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int) and x == 0:
            return y
        if isinstance(y, int) and y == 0:
            return x
        return self.b.add(self.int(x), self.int(y))

    def mul(self, x: Any, y: Any) -> Any:
        """x * y of i64 or ints, folded if possible."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for known, other in ((x, y), (y, x)):
            if isinstance(known, int) and known in (0, 1):
                return known * 0 if known == 0 else other
        return self.b.mul(self.int(x), self.int(y))

    def divmod(self, x: Any, by: Any) -> tuple[Any, Any]:
        """Quotient and remainder of a non-negative i64 by a positive one, folded if both are known."""
        if isinstance(by, int):
            if by == 1:
                return x, 0
            if isinstance(x, int):
                return divmod(x, by)
        return self.b.udiv(self.int(x), self.int(by)), self.b.urem(self.int(x), self.int(by))

    def unravel(self, x: Any, sizes: Sequence[Any]) -> list[Any]:
        """The index along each axis of the row-major index ``x``."""
        found: list[Any] = []
        for size in reversed(sizes[1:]):
            x, here = self.divmod(x, size)
            found.append(here)
        return [x, *reversed(found)] if sizes else []

    def least(self, x: Any, y: Any) -> Any:
        """The minimum of two i64."""
        x, y = self.int(x), self.int(y)
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    @contextmanager
    def loop(self, stop: Any, start: Any = 0, step: Any = 1, carried: list[Any] | None = None) -> Iterator[Any]:
        """``for i in range(start, stop, step)``; emits no loop if it is known to run exactly once.

        ``carried``: values in registers that the body replaces in the list; afterwards the list holds the last ones.
        """
        if all(isinstance(x, int) for x in (stop, start, step)) and 0 < stop - start <= step:
            yield start
            return
        before = self.b.block
        head, body, done = (self.function.append_basic_block(n) for n in ("head", "loop", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.phi(I64)
        index.add_incoming(self.int(start), before)
        values = [] if carried is None else carried
        for place, value in enumerate(values):
            values[place] = self.b.phi(value.type)
            values[place].add_incoming(value, before)
        phis = [*values]
        self.b.cbranch(self.b.icmp_signed("<", index, self.int(stop)), body, done)
        self.b.position_at_end(body)
        yield index
        index.add_incoming(self.b.add(index, self.int(step)), self.b.block)
        for place, phi in enumerate(phis):
            phi.add_incoming(values[place], self.b.block)
            values[place] = phi
        self.b.branch(head)
        self.b.position_at_end(done)

    def if_then(self, condition: Any, values: Sequence[Any], then: Callable[[], Sequence[Any]]) -> list[Any]:
        """``then()`` if the i1 ``condition`` is true, else ``values``."""
        before = self.b.block
        with self.b.if_then(condition):
            others, after = then(), self.b.block
        found = []
        for value, other in zip(values, others, strict=True):
            phi = self.b.phi(value.type)
            phi.add_incoming(value, before)
            phi.add_incoming(other, after)
            found.append(phi)
        return found

    def intrinsic(self, name: str, result: Any, *args: Any) -> Any:
        """A call of an LLVM intrinsic by its full name."""
        function = self._intrinsics.get(name)
        if function is None:
            type = ir.FunctionType(result, [a.type for a in args])
            function = self._intrinsics[name] = ir.Function(self.module, type, name)
        return self.b.call(function, args)


def suffix(type: Any) -> str:
    """The type in an intrinsic's name: f32, v16f32, i64."""
    if isinstance(type, ir.VectorType):
        return f"v{type.count}{suffix(type.element)}"
    if isinstance(type, ir.IntType):
        return f"i{type.width}"
    return "f32" if isinstance(type, ir.FloatType) else "f64"
