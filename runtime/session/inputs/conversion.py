"""Converts the arguments of ``predict`` to the dtypes of a model's inputs.

The rules are those of data files: an integer fits if its dtype holds it, a float takes an integer that it represents
exactly, and a wider float is rounded to nearest even. Everything else is refused. Training converts nothing, because a
conversion would cost time in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.fit import bounds, exact_integers, largest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Tensor


def converted(array: NDArray[Any], tensor: Tensor, place: str) -> NDArray[Any] | None:
    """``array`` in the dtype of an input, in native byte order; None if its kind of numbers is never converted.

    InputError R105 for a value that the dtype cannot hold.
    """
    if array.size == 0 and array.dtype == np.float64:  # an empty list has no numbers, so no dtype
        array = array.astype(np.int8)
    kind, target = array.dtype.kind, numpy_dtype(tensor.dtype)
    if tensor.dtype == "bf16" or kind not in "iuf" or (kind == "f" and target.kind != "f"):
        return None
    if kind == "f" and array.dtype.itemsize > target.itemsize:
        over = np.isfinite(array) & (np.abs(array) > largest(target))
        if over.any():
            raise _unfit(array, over, tensor, place, f"is too large for {target.name}")
    elif kind != "f" and array.size:
        exact = target.kind == "f"
        low, high = (-exact_integers(target), exact_integers(target)) if exact else bounds(target)
        if int(array.min()) < low or int(array.max()) > high:
            wrong = (array < max(low, bounds(array.dtype)[0])) | (array > min(high, bounds(array.dtype)[1]))
            rule = f"{target.name} holds integers {'exactly ' if exact else ''}from {low} to {high}"
            raise _unfit(array, wrong, tensor, place, f"does not fit: {rule}")
    return array.astype(target)


def _unfit(array: NDArray[Any], wrong: NDArray[np.bool_], tensor: Tensor, place: str, why: str) -> InputError:
    at = np.unravel_index(int(wrong.argmax()), array.shape)
    row = f" in row {int(at[0])}" if at else ""
    cause = f"`{tensor.name}` cannot be converted: the value {array[at]}{row} {why}"
    return InputError("R105", cause, place=place, help=f"expected {tensor}")
