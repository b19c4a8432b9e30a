"""A caller's object as a numpy array of a tensor's dtype, without a copy.

Accepted: numpy arrays (also strided and read-only ones) and any object in CPU memory with ``__dlpack__``. Nothing is
converted, except by ``predict``, which converts numbers (``conversion.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import DslcError, InputError
from dslc.base.words import reason
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype, numpy_name
from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DLPACK_CPU = 1  # kDLCPU of dlpack.h
_SHOWN = 60  # characters of a foreign value in a message


def as_array(call: str, tensor: Tensor, value: object, *, convert: bool = False) -> NDArray[Any] | OnDevice:
    """``as_numpy``, except that an array on the session's device is returned unchanged."""
    if not isinstance(value, OnDevice):
        return as_numpy(call, tensor, value, convert=convert)
    if value.dtype != tensor.dtype:
        raise InputError(
            "R105",
            f"`{tensor.name}` has the dtype {value.dtype}, expected {tensor}",
            place=f"{call}({tensor.name}=...)",
            help="nothing is converted silently; convert it on its device",
        )
    return value


def as_numpy(call: str, tensor: Tensor, value: object, *, convert: bool = False) -> NDArray[Any]:
    """``value`` as a numpy array of the tensor's dtype that shares its memory; InputError R105 for anything else. With
    ``convert`` also numbers of other dtypes and Python's, copied."""
    place = f"{call}({tensor.name}=...)"
    with foreign(f"`{tensor.name}` cannot be read", place):
        return _as_numpy(place, tensor, value, convert)


@contextmanager
def foreign(cause: str, place: str, help: str = "pass a numpy array") -> Iterator[None]:
    """Runs code of a caller's object: any exception that it raises becomes InputError R105."""
    try:
        yield
    except (DslcError, MemoryError):
        raise
    except Exception as error:  # foreign code may raise anything
        raise InputError("R105", f"{cause}: {_said(error)}", place=place, help=help) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(error, str)[:200]}"


def shown(value: object, text: Callable[[object], str] = repr) -> str:
    """The text of a caller's object, whose own code may raise."""
    try:
        return text(value)
    except Exception:  # noqa: BLE001
        return f"of type {type(value).__name__}"


def _as_numpy(place: str, tensor: Tensor, value: object, convert: bool) -> NDArray[Any]:
    expected = f"expected {tensor}"
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(
            "R105",
            f"`{tensor.name}` is a masked array, {expected}",
            place=place,
            help="pass x.filled(...): masks are not supported",
        )
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _of_dlpack(place, tensor, value)
    elif convert and isinstance(value, bool | int | float | list | tuple):
        array = np.asarray(value)  # may raise for lists that are no numbers
    else:
        raise InputError(
            "R105",
            f"`{tensor.name}` is {_kind(value)}, {expected}",
            place=place,
            help=f"pass an array: np.asarray(x, np.{numpy_name(tensor.dtype)})",
        )
    if convert and name_of(array.dtype) != tensor.dtype:
        from dslc.runtime.session.inputs.conversion import converted

        found = converted(array, tensor, place)
        if found is not None:
            return found
    if not array.dtype.isnative:
        raise InputError(
            "R105",
            f"`{tensor.name}` is in another byte order ({array.dtype.str}), {expected}",
            place=place,
            help=f"pass x.astype(np.{numpy_name(tensor.dtype)})",
        )
    if name_of(array.dtype) != tensor.dtype:
        raise InputError(
            "R105",
            f"`{tensor.name}` has the dtype {name_of(array.dtype) or array.dtype}, {expected}",
            place=place,
            help=_cast_help(array.dtype.kind, tensor.dtype),
        )
    return array


def _cast_help(kind: str, wanted: str) -> str:
    """What to pass instead of an array whose dtype has numpy's ``kind``; a cast that would lose values is not named
    without its condition."""
    if kind not in "biuf":
        return "pass numbers"
    name = f"np.{numpy_name(wanted)}"
    if kind == "f" and numpy_dtype(wanted).kind in "iu":
        pixels = "; for pixels in 0..1: (x * 255).round().astype(np.uint8)" if wanted == "u8" else ""
        return f"nothing is converted silently; if all values are whole numbers: x.astype({name}){pixels}"
    if numpy_dtype(wanted).kind in "iub" and kind != "b":
        return f"nothing is converted silently; if {name} holds all values: x.astype({name})"
    return f"nothing is converted silently; pass x.astype({name})"


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | str):
        return f"the {type(value).__name__} {shown(value)[:_SHOWN]}"
    return f"of type {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")[: _SHOWN + 8]


def _of_dlpack(place: str, tensor: Tensor, value: Any) -> NDArray[Any]:
    """Reads the value by the DLPack protocol, only on the CPU: without a copy or a transfer between devices."""
    try:
        device, _ = value.__dlpack_device__()
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputError(
            "R105",
            f"`{tensor.name}` does not report its device: {reason(error)}",
            place=place,
            help="pass a numpy array",
        ) from error
    if int(device) != _DLPACK_CPU:
        raise InputError(
            "R105",
            f"`{tensor.name}` is on another device (DLPack device type {int(device)}), expected {tensor} on the CPU",
            place=place,
            help="copy it to the CPU first, for instance x.cpu()",
        )
    try:
        array: NDArray[Any] = np.from_dlpack(value)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError, NotImplementedError) as error:
        wide = ".float()" if tensor.dtype == "f32" else ""  # numpy has no bf16
        raise InputError(
            "R105",
            f"`{tensor.name}` cannot be read through DLPack: {reason(error)}",
            place=place,
            help=f"pass a numpy array of {numpy_name(tensor.dtype)}, for instance x.detach(){wide}.numpy()",
        ) from error
    return array
