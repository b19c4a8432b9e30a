"""Types of values: a dtype and a shape."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from dslc.compiler.ir.described import described
from dslc.compiler.ir.sizes import Size, bind, product
from dslc.runtime.artifact.dtypes import ITEMSIZE


@described("DType", "FLOAT F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 B1")
class DType(enum.Enum):
    """Storage dtypes by their name in the language. The checker uses ``FLOAT``; the precision pass replaces it."""

    FLOAT = "float"
    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    B1 = "b1"

    @cached_property
    def is_float(self) -> bool:
        return self in (DType.FLOAT, DType.F64, DType.F32, DType.F16, DType.BF16)

    @cached_property
    def is_int(self) -> bool:
        return not self.is_float and self is not DType.B1

    @cached_property
    def is_unsigned(self) -> bool:
        """Whether its numbers are integers from 0: the unsigned ones, and b1."""
        return self in (DType.U64, DType.U32, DType.U16, DType.U8, DType.B1)

    @property
    def is_half(self) -> bool:
        """Whether it is a float of 16 bits."""
        return self in (DType.F16, DType.BF16)

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer dtype."""
        assert self.is_int, f"{self} is no integer"
        bits = 8 * self.itemsize
        return (0, (1 << bits) - 1) if self.is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)

    @cached_property
    def itemsize(self) -> int:
        """Bytes per element; FLOAT counts as f32."""
        return 4 if self is DType.FLOAT else ITEMSIZE[self.value]

    @property
    def computed(self) -> DType:
        """The dtype in which an op computes internally, and of a value in a register: f32 for 16-bit floats."""
        return DType.F32 if self.is_half else self

    __hash__ = object.__hash__  # replaces Enum's method, which is Python code and slower

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TensorType:
    """A dense, row-major tensor."""

    dtype: DType
    shape: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Size:
        return product(self.shape)

    @cached_property
    def ints(self) -> tuple[int, ...]:
        """The shape of a type without dims; fails an assertion otherwise."""
        assert all(isinstance(s, int) for s in self.shape), f"{self} still has dims"
        return self.shape  # type: ignore[return-value]

    @cached_property
    def bytes(self) -> int:
        """Bytes of a tensor of this type; its sizes must be ints."""
        count = prod(self.shape)
        assert isinstance(count, int), f"{self} still has dims"
        return count * self.dtype.itemsize

    @cached_property
    def _hash(self) -> int:
        return hash((self.dtype, self.shape))

    def __hash__(self) -> int:
        return self._hash

    def bind(self, values: Mapping[str, int]) -> TensorType:
        return TensorType(self.dtype, tuple(bind(s, values) for s in self.shape))

    def __str__(self) -> str:
        """The type as a user writes it: float tensors without a dtype."""
        sizes = ", ".join(str(s) for s in self.shape)
        return f"[{sizes}]" if self.dtype is DType.FLOAT else f"{self.dtype}[{sizes}]"


def alike(a: TensorType, b: TensorType) -> bool:
    """Whether both types have the same shape except for axes of size 1, and the same item size, so that they may share
    bytes."""
    shapes = ([size for size in t.shape if size != 1] for t in (a, b))
    return next(shapes) == next(shapes) and a.dtype.itemsize == b.dtype.itemsize
