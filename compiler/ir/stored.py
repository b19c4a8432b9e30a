"""The numbers of a constant tensor that the artifact stores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Stored:
    """``array``: the numbers as they were written or read: floats of any width, integers or bools."""

    array: NDArray[Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the dtype, the shape and the numbers."""
        head = f"{self.array.dtype.newbyteorder('<').str}{self.array.shape}"
        return hashlib.sha256(head.encode() + _little(self.array)).hexdigest()

    def numbers(self, dtype: DType) -> NDArray[Any]:
        """The numbers in a dtype that is neither FLOAT nor bf16; floats are rounded once."""
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            return self.array.astype(numpy_dtype(dtype.value))

    def encoded(self, dtype: DType) -> bytes:
        """The bytes of ``numbers``, row-major, little-endian."""
        return _little(self.numbers(dtype))


def _little(array: NDArray[Any]) -> bytes:
    little: np.dtype[Any] = array.dtype.newbyteorder("<")
    return array.astype(little, copy=False).tobytes("C")
