"""Checks the arguments of a call before any byte of them is copied: names, dtypes, shapes, and ranges of values.

``check_ranges`` comes last: a range may be the size of an axis that no input has, which the built programs know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import name_of
from dslc.runtime.artifact.interface import Dim, Tensor
from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray
from dslc.runtime.session.inputs.arrays import as_array
from dslc.runtime.session.inputs.shapes import check_shape, solve

#: ``Backend.may_be_outside``.
Look: TypeAlias = Callable[[Sequence[tuple[OnDevice, tuple[int, int]]]], bool]


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

    The names must have been checked. Raises InputError R105 for a wrong kind, dtype, byte order, rank or shape; the
    message states the expected and the given value.
    """
    arrays: dict[str, NDArray[Any] | OnDevice] = {
        t.name: as_array(call, t, given[t.name], convert=convert) for t in tensors
    }
    found = solve(call, arrays, tensors, dims)
    for tensor in tensors:
        check_shape(call, tensor, arrays[tensor.name].shape, found)
    return arrays, {name: value for name, (value, _) in found.items()}


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
        """The record of these arguments; None if an input is another object."""
        kinds = {t.name: type(given[t.name]) for t in tensors}
        for tensor in tensors:
            kind = kinds[tensor.name]
            if kind is not np.ndarray and not issubclass(kind, OnDevice):
                return None
            if kind is np.ndarray and name_of(given[tensor.name].dtype) != tensor.dtype:  # it was converted
                return None
        arrays = tuple((name, kind, given[name].dtype, given[name].shape) for name, kind in kinds.items())
        return cls(frozenset(given), arrays, tuple(t for t in tensors if t.is_index), dims)

    def fits(self, given: Mapping[str, Any]) -> bool:
        if given.keys() != self.names:
            return False
        for name, kind, dtype, shape in self.arrays:
            value = given[name]
            if type(given[name]) is not kind or value.dtype != dtype or value.shape != shape:
                return False
        return True


def check_ranges(
    call: str,
    arrays: Mapping[str, NDArray[Any] | OnDevice],
    tensors: Sequence[Tensor],
    dims: Mapping[str, int],
    look: Look,
) -> None:
    """Raise InputError R105 for a value outside its tensor's range. Arrays on a device are copied to the host only if
    ``look`` doubts them."""
    there = _on_device(arrays, tensors, dims)
    doubted = bool(there) and look(there)
    for tensor in tensors:
        array = arrays[tensor.name]
        if tensor.is_index and isinstance(array, np.ndarray):
            _check_range(call, tensor, array, tensor.range_at(dims))
        elif tensor.is_index and isinstance(array, OnDevice) and doubted:
            _check_range(call, tensor, array.numpy(), tensor.range_at(dims))


def all_in_range(
    arrays: Mapping[str, NDArray[Any] | OnDevice], tensors: Sequence[Tensor], dims: Mapping[str, int], look: Look
) -> bool:
    """True if no value of the given tensors is outside its range; for arrays on a device, if ``look`` says so."""
    given = [tensor for tensor in tensors if tensor.is_index and tensor.name in arrays]
    for tensor in given:
        array = arrays[tensor.name]
        if isinstance(array, np.ndarray) and not in_range(array, tensor.range_at(dims)):
            return False
    there = _on_device(arrays, given, dims)
    return not (there and look(there))


def _on_device(
    arrays: Mapping[str, NDArray[Any] | OnDevice], tensors: Sequence[Tensor], dims: Mapping[str, int]
) -> list[tuple[OnDevice, tuple[int, int]]]:
    """The arrays on a device whose values have a range, each with its range."""
    found = []
    for tensor in tensors:
        array = arrays[tensor.name]
        if tensor.is_index and isinstance(array, OnDevice) and (range := tensor.range_at(dims)) is not None:
            found.append((array, range))
    return found


def in_range(array: NDArray[Any], range: tuple[int, int] | None) -> bool:
    """True if all values are in [range[0], range[1])."""
    if range is None or not array.size:
        return True
    low, high = range
    return bool(low <= np.minimum.reduce(array, None) <= np.maximum.reduce(array, None) < high)


def _check_range(call: str, tensor: Tensor, array: NDArray[Any], range: tuple[int, int] | None) -> None:
    if range is not None and not in_range(array, range):
        low, high = range
        bad = (array < low) | (array >= high)
        at = np.unravel_index(int(bad.argmax()), array.shape)
        value = array[at]
        row = f" in row {int(at[0])}" if at else ""
        raise InputError(
            "R105",
            f"`{tensor.name}` holds {value}{row}, and there are {high - low} "
            f"{'places' if tensor.limits else 'classes'}: {low} to {high - 1}",
            place=f"{call}({tensor.name}=...)",
            help=f"values of `{tensor.name}` lie in [{low}, {high})",
        )
