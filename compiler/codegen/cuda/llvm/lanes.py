"""Values of a GPU thread as LLVM values: ``Lanes``, a small vector of one dtype per thread.

A generated kernel handles several elements in each thread. A value of n elements is one variable of the kernel's
source, so sources stay short; the functions that they call write the LLVM IR of each lane (``library.py`` lists them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from llvmlite import ir

from dslc.compiler.ir.types import DType

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()

_LLVM: Final[dict[DType, Any]] = {
    DType.F64: F64,
    DType.F32: F32,
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


@dataclass(frozen=True, slots=True)
class Lanes:
    """``values`` of a dtype that registers hold: all but bf16 and f16, which are f32 there.

    ``halves``: the packed bf16 or f16 pairs that the values came from, with their dtype; (None, ()) if unknown.
    """

    dtype: DType
    values: Sequence[Any]
    halves: tuple[DType | None, Sequence[Any]] = (None, ())

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def value(self) -> Any:
        """The only value."""
        [value] = self.values
        return value

    def spread(self, count: int) -> list[Any]:
        """``count`` values; a single one is repeated."""
        assert self.count in (1, count), f"{self.count} lanes instead of {count}"
        return list(self.values) * (count // self.count)


#: Writes the IR of a call: (builder, argument, ...) -> result. Pointers are LLVM values, other arguments ``Lanes``;
#: None if there is no result.
Writer: TypeAlias = Callable[..., Any]


def llvm_type(dtype: DType) -> Any:
    """The LLVM type of one value in a register."""
    return _LLVM[dtype]


def vector_of(builder: Any, values: Sequence[Any]) -> Any:
    """An LLVM vector of several values; a single value is returned as it is."""
    if len(values) == 1:
        return values[0]
    vector = ir.Constant(ir.VectorType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        vector = builder.insert_element(vector, value, I32(i))
    return vector
