"""The dims that the shapes of arrays determine, and shapes that do not fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.base.errors import InputError
from dslc.runtime.artifact.interface import Dim, Tensor, dims_of, size_value
from dslc.runtime.session.backend import OnDevice

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class _Shaped:
    """What is known about an array before its values are read."""

    shape: tuple[int, ...]


def solved(call: str, shapes: Mapping[Tensor, tuple[int, ...]], dims: Sequence[Dim]) -> dict[str, int]:
    """The value of each dim that arrays of these shapes determine. InputError R105 if they do not fit the inputs."""
    arrays = {tensor.name: _Shaped(shape) for tensor, shape in shapes.items()}
    return {name: value for name, (value, _) in solve(call, arrays, list(shapes), dims).items()}


def _shape_error(call: str, tensor: Tensor, shape: Sequence[int], why: str, help: str | None) -> InputError:
    return InputError(
        "R105",
        f"`{tensor.name}` has the shape [{', '.join(map(str, shape))}], expected {tensor}: {why}",
        place=f"{call}({tensor.name}=...)",
        help=help or f"pass an array of shape [{', '.join(map(str, tensor.shape))}]",
    )


def solve(
    call: str, arrays: Mapping[str, NDArray[Any] | OnDevice | _Shaped], tensors: Sequence[Tensor], dims: Sequence[Dim]
) -> dict[str, tuple[int, str]]:
    """The value of each dim and the input that determined it, from the axes that consist of a dim alone."""
    declared = {d.name: d for d in dims}
    found: dict[str, tuple[int, str]] = {}
    for tensor in tensors:
        shape = arrays[tensor.name].shape
        if len(shape) != len(tensor.shape):
            row = len(shape) == len(tensor.shape) - 1 and isinstance(tensor.shape[0], str)
            help = f"pass an array of shape [{', '.join(map(str, tensor.shape))}]; one row is x[None]" if row else None
            raise _shape_error(call, tensor, shape, f"it has rank {len(shape)}, not {len(tensor.shape)}", help)
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


def check_shape(call: str, tensor: Tensor, shape: Sequence[int], found: Mapping[str, tuple[int, str]]) -> None:
    values = {name: value for name, (value, _) in found.items()}
    for axis, (size, value) in enumerate(zip(tensor.shape, shape, strict=True)):
        if not dims_of(size) <= values.keys():
            continue  # no input determines these dims; the built programs decide
        expected = size_value(size, values)
        if value != expected:
            raise _shape_error(call, tensor, shape, f"axis {axis} has {value} elements, not {expected}", None)
