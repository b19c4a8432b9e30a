"""Operations on weight files: dtype conversions, differences between two files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import ITEMSIZE, numpy_dtype
from dslc.runtime.weights.tensor_bytes import FileTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLOATS: Final = ("f16", "bf16", "f32", "f64")
#: The lossless conversions of each dtype.
WIDER: Final = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",)}


def values(tensor: FileTensor) -> NDArray[Any]:
    """A file's tensor as a numpy array; bf16, which numpy lacks, as f32 with equal values."""
    array = tensor.array()
    if tensor.dtype == "bf16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array


def widened(tensor: FileTensor, dtype: str) -> NDArray[Any] | None:
    """The values converted without loss to ``dtype``; None if the conversion could lose bits."""
    if tensor.dtype == dtype:
        return tensor.array()
    return values(tensor).astype(numpy_dtype(dtype)) if dtype in WIDER.get(tensor.dtype, ()) else None


def converted(tensor: FileTensor, dtype: str, place: str) -> NDArray[Any]:
    """Float values in a float dtype, rounded to nearest even; other tensors unchanged.

    ArtifactError R305 for a finite value that would become infinite, or an unsupported dtype.
    """
    if tensor.dtype not in ITEMSIZE:
        raise ArtifactError(
            "R305", f"a tensor of {tensor.dtype}", place=place, help="convert it with the program that wrote it"
        )
    if tensor.dtype not in _FLOATS:
        return tensor.array()
    old = values(tensor)
    if dtype == "bf16":
        bits = old.astype(np.float32).view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        quiet = ((bits >> 16) | 0x40).astype(np.uint16)
        new = np.where(np.isnan(old), quiet, rounded).astype(np.uint16)
        overflow = np.isfinite(old) & ((new & 0x7F80) == 0x7F80)
    else:
        with np.errstate(over="ignore"):
            new = old.astype(numpy_dtype(dtype))
        overflow = np.isfinite(old) & ~np.isfinite(new)
    if overflow.any():
        cause = f"{old[overflow][0]} does not fit {dtype}"
        raise ArtifactError("R305", cause, place=place, help="use a wider dtype")
    return new


@dataclass(frozen=True)
class Difference:
    """The difference of a tensor between two files. ``largest``: the greatest absolute difference, if both have it."""

    name: str
    left: str | None
    right: str | None
    largest: float | None

    @property
    def same(self) -> bool:
        return self.left == self.right and self.largest == 0.0


def compared(left: Mapping[str, FileTensor], right: Mapping[str, FileTensor]) -> list[Difference]:
    """All tensors of two files by name. Equal NaNs count as equal, other NaNs as an infinite difference."""
    found = []
    for name in sorted({*left, *right}):
        a, b = left.get(name), right.get(name)
        largest = None
        if a is not None and b is not None and a.shape == b.shape:
            largest = 0.0 if a.dtype == b.dtype and np.array_equal(a.raw, b.raw) else _largest(a, b)
        found.append(Difference(name, None if a is None else str(a), None if b is None else str(b), largest))
    return found


def _largest(a: FileTensor, b: FileTensor) -> float | None:
    try:
        x, y = values(a), values(b)
    except KeyError:
        return None  # a dtype of the format that is unsupported here
    if x.dtype.kind != "f" and y.dtype.kind != "f":
        return float(max((abs(int(p) - int(q)) for p, q in zip(x.flat, y.flat, strict=True) if p != q), default=0))
    with np.errstate(all="ignore"):
        gap = np.abs(x.astype(np.float64) - y.astype(np.float64))
    gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, gap)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
