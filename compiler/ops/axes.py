"""Conversion of the axes that functions take."""

from __future__ import annotations

from dslc.compiler.ir.function import Axes
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import TensorType


def from_zero(name: str, x: TensorType, axis: int) -> int:
    """``axis`` of x as an index from 0; negative ones count from the end. Raises Mismatch E0306."""
    if not -x.rank <= axis < x.rank:
        axes = f"axes 0 to {x.rank - 1}" if x.rank else "no axes"
        raise Mismatch(f"`{name}` along axis {axis}, but {x} has {axes}", None, "E0306")
    return axis % x.rank


def adjacent(name: str, x: TensorType, axes: int | Axes) -> tuple[int, int]:
    """The first of these axes of x and the one after the last. Raises Mismatch E0306 unless they lie side by side."""
    found = sorted({from_zero(name, x, axis) for axis in ((axes,) if isinstance(axes, int) else axes)})
    if not found or found[-1] - found[0] != len(found) - 1:
        raise Mismatch(f"`{name}` over the axes {found} of {x}", "name neighbours, or `transpose`", "E0306")
    return found[0], found[-1] + 1
