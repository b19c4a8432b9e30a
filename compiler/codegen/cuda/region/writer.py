"""Source writer of a kernel: statements, typed constants, calls of library functions, index arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from dslc.compiler.codegen.cuda.llvm.division import magic_of
from dslc.compiler.codegen.cuda.region.source import Call, Parameter, Source
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.bits import BYTE

#: The expression of an index, or its value if known when the kernel is generated.
Index: TypeAlias = "str | int"


@dataclass(frozen=True, slots=True)
class Divisor:
    """A size that divides indices and is a kernel argument: itself, its magic number and its shift
    (``division.py``)."""

    size: str
    magic: str
    shift: str


class SourceWriter:
    """A function under construction. ``wide``: indices are i64, else i32."""

    def __init__(self, name: str, arguments: int, wide: bool) -> None:
        self.name, self.arguments, self.wide = name, arguments, wide
        self._lines: list[str] = []
        self._constants: dict[tuple[DType, str], str] = {}
        self._calls: dict[Call, None] = {}
        self._given: dict[tuple[str, int], tuple[str, str]] = {}  # to the parameter's name and the index expression
        self._indent = 1
        self._count = 0

    def source(self, threads: int, resident: int = 1) -> Source:
        """The source, for blocks of ``threads``, of which a multiprocessor has room for ``resident``."""
        constants = [f"{name} = {dtype}({value})" for (dtype, value), name in self._constants.items()]
        arguments = ", ".join([*(f"p{i}" for i in range(self.arguments)), *(name for name, _ in self._given.values())])
        lines = [*constants, f"def {self.name}({arguments}):", *self._lines, ""]
        numbers = (self.index_dtype,) * len(self._given)
        return Source(self.name, "\n".join(lines), self.arguments, threads, tuple(self._calls), resident, numbers)

    @property
    def scalar_args(self) -> ScalarArgs:
        """The scalar arguments of the kernel after its pointers."""
        return tuple((self.index_dtype.value, value) for _, value in self._given)

    def number(self, role: str, value: int) -> str:
        """An index passed as a kernel argument; equal roles and values share one."""
        if (role, value) not in self._given:
            name = f"n{len(self._given)}"
            self._given[role, value] = name, self.set(self.call("fill", (self.index_dtype, 1), name))
        return self._given[role, value][1]

    def write(self, statement: str) -> None:
        self._lines.append("    " * self._indent + statement)

    def set(self, expression: str, name: str | None = None) -> str:
        """Emits ``name = expression``, with a new name by default; returns the name."""
        if name is None:
            if expression.isidentifier():
                return expression
            self._count += 1
            name = f"t{self._count}"
        self.write(f"{name} = {expression}")
        return name

    def divisor(self, role: str, size: int) -> int | Divisor:
        """A size passed as a kernel argument; the size itself if indices are i64, since only i32 is divided this
        way."""
        if self.wide:
            return size
        magic, shift = magic_of(size)
        return Divisor(*(self.number(f"{role} {i}", n) for i, n in enumerate((size, magic, shift))))

    def call(self, head: str, parameters: Sequence[Parameter], *args: Index) -> str:
        """The expression of a call."""
        call = Call(head, tuple(parameters))
        self._calls[call] = None
        return f"{call.name}({', '.join(str(a) for a in args)})"

    def load(self, access: Access, vector: int, pointer: str, at: str, mask: str | None) -> str:
        """The expression that loads ``vector`` neighbours at each index of ``at``."""
        return self._moved("load", access, vector, (pointer, at), mask)

    def store(self, access: Access, vector: int, pointer: str, at: str, value: str, mask: str | None) -> None:
        """Emits the store in the format of ``load``."""
        self.write(self._moved("store", access, vector, (pointer, at, value), mask))

    def _moved(self, head: str, access: Access, vector: int, args: tuple[str, ...], mask: str | None) -> str:
        parameters: tuple[Parameter, ...] = (vector,) if access.bits else (access.dtype, vector)
        assert not access.bits or vector % BYTE == 0, "single bits have no address"
        head += "_bits" * access.bits + "_if" * (mask is not None)
        return self.call(head, parameters, *args, *(() if mask is None else (mask,)))

    def constant(self, value: float | int | bool, dtype: DType) -> str:
        """A constant of a dtype that registers hold."""
        if dtype is DType.B1:
            return str(bool(value))
        shown = f'"{float(value).hex()}"' if dtype.is_float else str(_wrapped(int(value), dtype))
        return self._constants.setdefault((dtype, shown), f"c{len(self._constants)}")

    @contextmanager
    def loop(self, count: int) -> Iterator[Index]:
        """``for j in range(count)``, j as an index; no loop if ``count`` is 1."""
        if count == 1:
            yield 0
            return
        self._count += 1
        name = f"t{self._count}"
        self.write(f"for {name} in range({count}):")
        self._indent += 1
        yield self.set(self.call("to", (self.index_dtype,), name))
        self._indent -= 1

    @property
    def index_dtype(self) -> DType:
        return DType.I64 if self.wide else DType.I32

    def both(self, *masks: str | None) -> str | None:
        """The conjunction of all masks; None if there are none."""
        found = None
        for mask in masks:
            if mask is not None:
                found = mask if found is None else self.set(self.call("and", (), found, mask))
        return found

    def here(self, register: str) -> str:
        """``thread`` or ``block`` as an index."""
        found = self.call(register, ())
        return self.set(self.call("to", (DType.I64,), found) if self.wide else found)

    def plus(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int):
            x, y = y, x
        return x if y == 0 else self.set(self.call("plus", (), x, y))

    def times(self, x: Index, by: Index) -> Index:
        if isinstance(x, int) and isinstance(by, int):
            return x * by
        if isinstance(x, int):
            x, by = by, x
        if by in (0, 1):
            return x if by else 0
        return self.set(self.call("times", (), x, by))

    def divmod(self, x: Index, by: int | Divisor) -> tuple[Index, Index]:
        """Quotient and remainder of a non-negative index."""
        if isinstance(by, Divisor):
            quotient = self.set(self.call("divided", (), self.known(x), by.magic, by.shift))
            return quotient, self.set(self.call("rest", (), self.known(x), quotient, by.size))
        if isinstance(x, int):
            return divmod(x, by)
        if by == 1:
            return x, 0
        return self.set(self.call("quotient", (), x, by)), self.set(self.call("remainder", (), x, by))

    def unravel(self, x: Index, sizes: Sequence[int | Divisor]) -> list[Index]:
        """The index along each axis of the row-major index ``x``."""
        found: list[Index] = []
        for size in reversed(sizes[1:]):
            x, along = self.divmod(x, size)
            found.append(along)
        return [x, *reversed(found)] if sizes else []

    def dot(self, start: Index, indices: Sequence[Index], strides: Sequence[Index]) -> Index:
        """``start`` plus the indices times the strides."""
        for index, stride in zip(indices, strides, strict=True):
            start = self.plus(start, self.times(index, stride))
        return start

    def below(self, x: Index, end: Index) -> str:
        return self.set(self.call("below", (), x, end))

    def ramp(self, x: Index, count: int, step: int) -> Index:
        """The indices x, x + step, ..., as adjacent lanes."""
        if count == 1:
            return x
        if isinstance(x, int):
            x = self.call("fill", (self.index_dtype, 1), x)
        return self.set(self.call("ramp", (count, step), x))

    def known(self, x: Index) -> str:
        """An index as a value of its dtype, even if it is a known number."""
        return x if isinstance(x, str) else self.set(self.call("fill", (self.index_dtype, 1), x))


def _wrapped(value: int, dtype: DType) -> int:
    """The value wrapped to the dtype's range."""
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if not dtype.is_unsigned and value >> bits - 1 else value


def power_of_two(*numbers: int) -> int:
    """The largest power of two that divides all numbers; any divides 0."""
    common = math.gcd(*numbers)
    return common & -common if common else 1 << 30
