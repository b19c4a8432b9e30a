"""Checks a caller's arguments before any byte of them is copied. Nothing is converted, except by ``predict``, which
converts numbers (``conversion``).

Accepted: numpy arrays (also strided and read-only ones) and any object in CPU memory with ``__dlpack__``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import DslcError, InputError
from dslc.base.words import reason
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype, numpy_name
from dslc.runtime.artifact.interface import Dim, Tensor, dims_of, size_value
from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DLPACK_CPU = 1  # kDLCPU of dlpack.h
_SHOWN = 60  # characters of a foreign value in a message


def check_names(
    call: str,
    given: Sequence[str],
    expected: Sequence[str],
    optional: Sequence[str] = (),
    elsewhere: Collection[str] = (),
) -> None:
    """Raise InputError R105 for a name that the call does not accept, or a missing name. ``elsewhere``: names that
    other calls of the session accept, such as labels."""
    for name in given:
        if name not in expected and name not in optional:
            known = [*expected, *optional]
            close = [] if name in elsewhere else get_close_matches(name, known, 1)
            help = "its inputs are " + (", ".join(f"`{n}`" for n in known) or "none")
            if name in elsewhere:
                help += "; training takes this one, too: `session.data.encode(table, targets=False)` leaves it out"
            raise InputError(
                "R105",
                f"`{name}` is not an input of `{call}`",
                place=f"{call}({name}=...)",
                help=f"did you mean `{close[0]}`?" if close else help,
            )
    for name in expected:
        if name not in given:
            raise InputError(
                "R105",
                f"`{name}` is missing",
                place=f"{call}({name}=...)",
                help="its inputs are " + ", ".join(f"`{n}`" for n in expected),
            )


def check_inputs(
    call: str, given: Mapping[str, object], tensors: Sequence[Tensor], dims: Sequence[Dim], *, convert: bool = False
) -> tuple[dict[str, NDArray[Any] | OnDevice], dict[str, int]]:
    """The arrays of ``given`` (views, not copies, unless ``convert`` and the dtype differs) and the value of each dim
    that they determine.

    The names must have been checked. Raises InputError R105 for a wrong kind, dtype, byte order, rank, shape, or value
    range; the message states the expected and the given value.
    """
    arrays: dict[str, NDArray[Any] | OnDevice] = {
        t.name: as_array(call, t, given[t.name], convert=convert) for t in tensors
    }
    for tensor in tensors:  # ranges are checked on the host
        array = arrays[tensor.name]
        if tensor.range is not None and isinstance(array, OnDevice):
            arrays[tensor.name] = array.numpy()
    found = _solve(call, arrays, tensors, dims)
    for tensor in tensors:
        _check_shape(call, tensor, arrays[tensor.name].shape, found)
    check_ranges(call, arrays, tensors)
    return arrays, {name: value for name, (value, _) in found.items()}


@dataclass(frozen=True, slots=True)
class _Shaped:
    """What is known about an array before its values are read."""

    shape: tuple[int, ...]


def solved(call: str, shapes: Mapping[Tensor, tuple[int, ...]], dims: Sequence[Dim]) -> dict[str, int]:
    """The value of each dim that arrays of these shapes determine. InputError R105 if they do not fit the inputs."""
    arrays = {tensor.name: _Shaped(shape) for tensor, shape in shapes.items()}
    return {name: value for name, (value, _) in _solve(call, arrays, list(shapes), dims).items()}


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted arguments of a call that converted none of them. If a later call has plain or device arrays of the
    same dtypes and shapes, only values are checked again. ``ranged`` are the tensors whose values have a range."""

    names: frozenset[str]
    arrays: tuple[tuple[str, type, object, tuple[int, ...]], ...]
    ranged: tuple[Tensor, ...]
    dims: dict[str, int]

    @classmethod
    def of(cls, given: Mapping[str, Any], tensors: Sequence[Tensor], dims: dict[str, int]) -> Accepted | None:
        """The record of these arguments; None if an input is another object, or must be copied to the host."""
        kinds = {t.name: type(given[t.name]) for t in tensors}
        for tensor in tensors:
            kind = kinds[tensor.name]
            if kind is not np.ndarray and (tensor.range is not None or not issubclass(kind, OnDevice)):
                return None
            if kind is np.ndarray and name_of(given[tensor.name].dtype) != tensor.dtype:  # it was converted
                return None
        arrays = tuple((name, kind, given[name].dtype, given[name].shape) for name, kind in kinds.items())
        return cls(frozenset(given), arrays, tuple(t for t in tensors if t.range is not None), dims)

    def fits(self, given: Mapping[str, Any]) -> bool:
        if given.keys() != self.names:
            return False
        for name, kind, dtype, shape in self.arrays:
            value = given[name]
            if type(given[name]) is not kind or value.dtype != dtype or value.shape != shape:
                return False
        return True


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
        from dslc.runtime.session.conversion import converted

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
        raise InputError(
            "R105",
            f"`{tensor.name}` cannot be read through DLPack: {reason(error)}",
            place=place,
            help=f"pass a numpy array of {numpy_name(tensor.dtype)}, for instance x.detach().numpy()",
        ) from error
    return array


def _shape_error(call: str, tensor: Tensor, shape: Sequence[int], why: str, help: str | None) -> InputError:
    return InputError(
        "R105",
        f"`{tensor.name}` has the shape [{', '.join(map(str, shape))}], expected {tensor}: {why}",
        place=f"{call}({tensor.name}=...)",
        help=help or f"pass an array of shape [{', '.join(map(str, tensor.shape))}]",
    )


def _solve(
    call: str, arrays: Mapping[str, NDArray[Any] | OnDevice | _Shaped], tensors: Sequence[Tensor], dims: Sequence[Dim]
) -> dict[str, tuple[int, str]]:
    """The value of each dim and the input that determined it, from the axes that consist of a dim alone."""
    declared = {d.name: d for d in dims}
    found: dict[str, tuple[int, str]] = {}
    for tensor in tensors:
        shape = arrays[tensor.name].shape
        if len(shape) != len(tensor.shape):
            raise _shape_error(call, tensor, shape, f"it has rank {len(shape)}, not {len(tensor.shape)}", None)
        for axis, (size, value) in enumerate(zip(tensor.shape, shape, strict=True)):
            dim = declared.get(size) if isinstance(size, str) else None
            if dim is None:
                continue
            if not dim.low <= value <= dim.high:
                raise _shape_error(
                    call,
                    tensor,
                    shape,
                    f"{dim.name} would be {value} (axis {axis})",
                    f"{dim.name} must be in {dim.low}..{dim.high}, by `dim {dim.name}` in the source",
                )
            have = found.setdefault(dim.name, (value, tensor.name))
            if have[0] != value:
                raise _shape_error(
                    call,
                    tensor,
                    shape,
                    f"{dim.name} is {value} here (axis {axis}) and {have[0]} in `{have[1]}`",
                    f"give every input the same {dim.name}",
                )
    return found


def _check_shape(call: str, tensor: Tensor, shape: Sequence[int], found: Mapping[str, tuple[int, str]]) -> None:
    values = {name: value for name, (value, _) in found.items()}
    for axis, (size, value) in enumerate(zip(tensor.shape, shape, strict=True)):
        if not dims_of(size) <= values.keys():
            continue  # no input determines these dims; the built programs decide
        expected = size_value(size, values)
        if value != expected:
            raise _shape_error(call, tensor, shape, f"axis {axis} has {value} elements, not {expected}", None)


def check_ranges(call: str, arrays: Mapping[str, NDArray[Any] | OnDevice], tensors: Sequence[Tensor]) -> None:
    """Raise InputError R105 for a host value outside its tensor's range."""
    for tensor in tensors:
        array = arrays[tensor.name]
        if tensor.range is not None and isinstance(array, np.ndarray):
            _check_range(call, tensor, array, tensor.range)


def in_range(array: NDArray[Any], range: tuple[int, int] | None) -> bool:
    """True if all values are in [range[0], range[1])."""
    if range is None or not array.size:
        return True
    low, high = range
    return bool(low <= np.minimum.reduce(array, None) <= np.maximum.reduce(array, None) < high)


def _check_range(call: str, tensor: Tensor, array: NDArray[Any], range: tuple[int, int]) -> None:
    low, high = range
    if not in_range(array, range):
        bad = (array < low) | (array >= high)
        at = np.unravel_index(int(bad.argmax()), array.shape)
        value = array[at]
        row = f" in row {int(at[0])}" if at else ""
        raise InputError(
            "R105",
            f"`{tensor.name}` holds {value}{row}, and there are {high - low} classes: {low} to {high - 1}",
            place=f"{call}({tensor.name}=...)",
            help=f"values of `{tensor.name}` lie in [{low}, {high})",
        )
