"""Values of a GPU thread as Numba types: ``Lanes``, a few values side by side, and what one value of them is.

A printed kernel handles several elements in each thread. Written out one by one they would make long texts that Numba
compiles slowly, and Numba would never load 16 bytes at once. So a value of n elements is one variable of the type
``Lanes(dtype, n)``, an LLVM vector; one of a single element is a Numba scalar. Functions of lanes are intrinsics that
write the LLVM IR of each lane (``library.py`` lists them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import core_models, register_model

from dslc.compiler.ir.types import DType

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()

_SCALARS: Final[dict[DType, Any]] = {
    DType.F64: types.float64,
    DType.F32: types.float32,
    DType.I64: types.int64,
    DType.I32: types.int32,
    DType.I16: types.int16,
    DType.I8: types.int8,
    DType.U8: types.uint8,
    DType.B1: types.boolean,
}
_DTYPES: Final = {t: d for d, t in _SCALARS.items()}
_LLVM: Final[dict[DType, Any]] = {
    DType.F64: F64,
    DType.F32: F32,
    DType.I64: I64,
    DType.I32: I32,
    DType.I16: I16,
    DType.I8: I8,
    DType.U8: I8,
    DType.B1: I1,
}
#: The types of pointers: bytes, whatever lies there.
POINTER: Final = types.CPointer(types.uint8)


class Lanes(types.Type):  # type: ignore[misc]
    """``count`` > 1 values of a dtype that registers hold: all but bf16 and f16, which are f32 there."""

    def __init__(self, dtype: DType, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class _LanesModel(core_models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, type: Lanes) -> None:
        super().__init__(manager, type, ir.VectorType(_LLVM[type.dtype], type.count))


def type_of(dtype: DType, count: int) -> Any:
    """The Numba type of ``count`` values."""
    return _SCALARS[dtype] if count == 1 else Lanes(dtype, count)


def dtype_of(type: Any) -> DType:
    """The dtype of lanes or of a scalar."""
    return type.dtype if isinstance(type, Lanes) else _DTYPES[types.unliteral(type)]


def count_of(type: Any) -> int:
    return type.count if isinstance(type, Lanes) else 1


def llvm_type(dtype: DType) -> Any:
    """The LLVM type of one value in a register."""
    return _LLVM[dtype]


def unpacked(builder: Any, value: Any, type: Any) -> list[Any]:
    """The lanes as LLVM values. Those of a vector that was packed here are known; nothing is written for them."""
    if not isinstance(type, Lanes):
        return [value]
    known: list[Any] | None = getattr(value, "lanes", None)
    return known or [builder.extract_element(value, I32(i)) for i in range(type.count)]


def packed(builder: Any, lanes: Sequence[Any]) -> Any:
    """One LLVM value of them."""
    if len(lanes) == 1:
        return lanes[0]
    vector = ir.Constant(ir.VectorType(lanes[0].type, len(lanes)), ir.Undefined)
    for i, lane in enumerate(lanes):
        vector = builder.insert_element(vector, lane, I32(i))
    vector.lanes = list(lanes)
    return vector


def spread(lanes: list[Any], count: int) -> list[Any]:
    """``count`` lanes of one or as many."""
    assert len(lanes) in (1, count), f"{len(lanes)} lanes where {count} are wanted"
    return lanes * (count // len(lanes))
