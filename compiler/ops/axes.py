"""Conversion of the axes that functions take."""

from __future__ import annotations

from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import TensorType


def from_zero(name: str, x: TensorType, axis: int) -> int:
    """``axis`` of x as an index from 0; negative ones count from the end. Raises Mismatch E0306."""
    if not -x.rank <= axis < x.rank:
        axes = f"axes 0 to {x.rank - 1}" if x.rank else "no axes"
        raise Mismatch(f"`{name}` along axis {axis}, but {x} has {axes}", None, "E0306")
    return axis % x.rank
