"""Numpy views of the buffers of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dslc.runtime.artifact.dtypes import name_of, numpy_dtype
from dslc.runtime.artifact.plan import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"


def view_of(buffer: Buffer, regions: Mapping[str, NDArray[np.uint8]]) -> Array:
    dtype = numpy_dtype(buffer.dtype)
    count = dtype.itemsize
    for size in buffer.shape:
        count *= size
    return regions[buffer.region][buffer.offset : buffer.offset + count].view(dtype).reshape(buffer.shape)


def read_only(view: Array) -> Array:
    copy = view[...]
    copy.flags.writeable = False
    return copy


def described(view: Array) -> str:
    return f"{name_of(view.dtype) or view.dtype}[{', '.join(map(str, view.shape))}]"
