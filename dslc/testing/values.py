"""Inputs at which float arithmetic goes wrong, the numpy meaning of a model, and the comparison of two results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dslc.compiler.check.model import Checked
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

_MOST: Final = float(np.finfo(np.float32).max)
#: Name -> the values that fill an input, in turn.
SPECIAL: Final[Mapping[str, tuple[float, ...]]] = {
    "zeros of both signs": (0.0, -0.0, -0.0),
    "ones and halves": (1.0, -0.5, 0.5, -1.0, 1.5, 2.5, -2.5),
    "denormals": (1e-45, -1e-45, 1e-40, -1e-39, 0.0, 1.2e-38),
    "small numbers": (1e-5, -1e-6, 1e-10, -1e-20, 1e-30),
    "saturated numbers": (-9.5, 9.5, -17.5, 17.5, -30.0, 30.0, 5.9),
    "far numbers": (-87.0, 87.0, -88.8, 88.8, -104.5, 120.0, -150.0),
    "large numbers": (1e4, -1e5, 1e10, -1e12, 1e18, -3e18),
    "the largest numbers": (1e38, -_MOST, _MOST, 1e20, -1e36),
    "an infinity": (np.inf, 1.0, -2.0, 0.5, 0.0, -0.0),
    "minus infinity": (-np.inf, 1.0, -2.0, 0.5, 0.0, -0.0),
    "both infinities": (np.inf, -1.0, -np.inf, 1.0),
    "nan": (np.nan, 1.0, -2.0, 0.5),
}
RTOL, ATOL = 2e-5, 2e-6  # of f32 kernels against numpy


def feeds(inputs: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The inputs with one float input, or all, made of special values; a name for each."""
    floats = [name for name, x in inputs.items() if x.dtype.kind == "f" and x.size]
    for group in [(name,) for name in floats] + ([tuple(floats)] if len(floats) > 1 else []):
        for title, values in SPECIAL.items():
            filled = {
                name: np.resize(np.roll(np.array(values, np.float32), -number), inputs[name].shape)
                for number, name in enumerate(floats)
                if name in group
            }
            yield f"{title} in {' and '.join(group)}", {**inputs, **filled}


class WrongType(Exception):
    """The numpy meaning of an op gives another type than the op infers."""


def meant(checked: Checked, outputs: str, arrays: Mapping[str, Array], dtype: DType) -> Array:
    """The first output whose name begins with ``outputs``, by the numpy meanings of all ops; floats in ``dtype``.

    ``arrays``: the inputs and parameters by name. Raises WrongType for an op of a package."""
    known = {i.value: np.asarray(arrays[i.name]) for i in checked.graph.inputs if i.name in arrays}
    known |= {i.value: i.stored.array for i in checked.graph.inputs if i.stored is not None}
    as_float = numpy_dtype(dtype.value)
    known = {value: x.astype(as_float) if x.dtype.kind == "f" else x for value, x in known.items()}
    wanted = next(value for name, value in checked.graph.outputs.items() if name.startswith(outputs))
    with np.errstate(all="ignore"):
        for node in checked.graph.nodes:
            if all(value in known for value in node.inputs):
                attrs = {name: _plain(attr, dtype) for name, attr in node.attrs.items()}
                found = node.op.meaning([known[value] for value in node.inputs], attrs)
                if "." in node.op.name:
                    _check_types(node, found, dtype)
                known.update(zip(node.outputs, map(np.asarray, found), strict=True))
    return known[wanted]


def _check_types(node: Node, found: Sequence[Any], dtype: DType) -> None:
    wanted = [f"{(dtype if t.dtype is DType.FLOAT else t.dtype).value}{list(t.shape)}" for t in node.types]
    got = [f"{name_of(np.asarray(x).dtype)}{list(np.shape(x))}" for x in found]
    if got != wanted:
        raise WrongType(f"`{node.op.name}` gives {' and '.join(got)}, and infers {' and '.join(wanted)}")


def _plain(attr: Any, dtype: DType) -> Any:
    """An attribute as the runtime brings it to ``meaning``: names for dtypes, lists for tuples."""
    if isinstance(attr, DType):
        return (dtype if attr is DType.FLOAT else attr).value
    return [_plain(each, dtype) for each in attr] if isinstance(attr, (tuple, list)) else attr


def difference(found: Array, wanted: Array, rtol: float = RTOL, atol: float = ATOL) -> str | None:
    """The first place at which two results differ by more than rounding; None if there is none."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"is {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        bad = np.asarray(found != wanted)
    else:
        with np.errstate(all="ignore"):
            finite = np.isfinite(wanted)
            scale = float(np.abs(wanted[finite]).max(initial=0.0))
            near = np.abs(found - wanted) <= rtol * (np.abs(wanted) + scale) + atol
            top = np.abs(found) > _MOST * (1 - rtol)  # the largest number and infinity are neighbours
            edge = top & (np.abs(wanted) > _MOST * (1 - rtol)) & (np.sign(found) == np.sign(wanted))
            bad = np.asarray(~(near | edge | (found == wanted) | (np.isnan(found) & np.isnan(wanted))))
    if not bad.any():
        return None
    place = tuple(int(k) for k in np.argwhere(bad)[0])
    return f"is {found[place]!s} at {list(place)}, not {wanted[place]!s}"
