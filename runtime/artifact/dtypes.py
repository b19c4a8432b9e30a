"""Storage dtypes: their names in an artifact and in numpy.

bf16 has no numpy dtype: it is stored as the 16 bits of a uint16, with which only kernels compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NUMPY: Final = MappingProxyType(
    {
        "f64": "float64",
        "f32": "float32",
        "f16": "float16",
        "bf16": "uint16",
        "i64": "int64",
        "i32": "int32",
        "i16": "int16",
        "i8": "int8",
        "u64": "uint64",
        "u32": "uint32",
        "u16": "uint16",
        "u8": "uint8",
        "b1": "bool",
    }
)
ITEMSIZE: Final = MappingProxyType(  # bytes
    {
        "f64": 8,
        "f32": 4,
        "f16": 2,
        "bf16": 2,
        "i64": 8,
        "i32": 4,
        "i16": 2,
        "i8": 1,
        "u64": 8,
        "u32": 4,
        "u16": 2,
        "u8": 1,
        "b1": 1,
    }
)
#: Most elements of a tensor, ignoring axes of size zero: numpy bounds this product in bytes; the widest dtype has 8.
MOST_ELEMENTS: Final = (1 << 60) - 1
_FROM_NUMPY: Final = MappingProxyType({v: k for k, v in _NUMPY.items() if k != "bf16"})


def elements_of_axes(shape: Iterable[int]) -> int:
    """The product of the nonzero axes."""
    return prod(size for size in shape if size)


def numpy_name(name: str) -> str:
    """numpy's name of a storage dtype (``f32`` -> ``float32``); KeyError for an unknown dtype."""
    return _NUMPY[name]


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype, in the machine's byte order, that stores values of this dtype."""
    import numpy as np

    return np.dtype(_NUMPY[name])


def filled(name: str, shape: Sequence[int], number: float) -> NDArray[Any]:
    """An array of this dtype with one number, rounded to the nearest, in each element."""
    import numpy as np

    if name == "bf16":
        bits = int(np.float32(number).view(np.uint32))
        number = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.full(shape, number, numpy_dtype(name))


@lru_cache(maxsize=64)  # numpy computes a dtype's name on each access
def name_of(dtype: np.dtype[np.generic]) -> str | None:
    """Our name of a numpy dtype in native byte order; None for a dtype without one."""
    return _FROM_NUMPY.get(dtype.name) if dtype.isnative else None
