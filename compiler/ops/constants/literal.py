"""literal: a small constant tensor with its values written out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import dtype_attr, ints_attr
from dslc.compiler.ops.lazy import np
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Literal(Op):
    """literal(): a constant tensor.

    Attributes: ``values``, finite floats in row-major order, ``shape`` of ints, and a float ``dtype`` to which each
    value is rounded once.
    """

    name = "literal"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "literal takes no inputs"
        values, shape, dtype = attrs["values"], ints_attr(attrs, "shape"), dtype_attr(attrs)
        assert isinstance(values, tuple) and len(values) == math.prod(shape) and dtype.is_float
        assert all(isinstance(v, float) and math.isfinite(v) for v in values), f"not finite floats: {values}"
        return (TensorType(dtype, shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return (np.array(attrs["values"], numpy_dtype(attrs["dtype"])).reshape(tuple(attrs["shape"])),)

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


literal = register(Literal())


def vector(values: Sequence[float], axis: int, rank: int) -> dict[str, Any]:
    """The attributes of a float literal that lies along ``axis`` (from 0) of tensors of this rank; a single value is a
    scalar."""
    shape: tuple[int, ...] = () if len(values) == 1 else (len(values), *(1,) * (rank - 1 - axis))
    return {"values": tuple(float(v) for v in values), "shape": shape, "dtype": DType.FLOAT}
