"""Types of values: a dtype and a shape."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from dslc.compiler.ir.described import described
from dslc.compiler.ir.sizes import Size, bind, product


@described("DType", "FLOAT F64 F32 F16 BF16 I64 I32 I16 I8 U8 B1")
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
    U8 = "u8"
    B1 = "b1"

    @cached_property
    def is_float(self) -> bool:
        return self in (DType.FLOAT, DType.F64, DType.F32, DType.F16, DType.BF16)

    @cached_property
    def is_int(self) -> bool:
        return not self.is_float and self is not DType.B1

    @cached_property
    def itemsize(self) -> int:
        """Bytes per element; FLOAT counts as f32."""
        return {"f64": 8, "i64": 8, "f16": 2, "bf16": 2, "i16": 2, "i8": 1, "u8": 1, "b1": 1}.get(self.value, 4)

    @property
    def computed(self) -> DType:
        """The dtype in which an op computes internally, and of a value in a register: f32 for 16-bit floats."""
        return DType.F32 if self in (DType.F16, DType.BF16) else self

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
