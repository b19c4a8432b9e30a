"""Constants: ``full`` and the functions ``full``, ``zeros`` and ``ones``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Shape, function
from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Poly, bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import NOT_FINITE, dtype_attr, shape_attr
from dslc.compiler.ops.lazy import np
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def as_attr(value: float) -> Attr:
    """A number as the attribute ``value`` of ``full``."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _check(value: Attr, dtype: DType) -> None:
    assert isinstance(value, bool | int | float | Poly) or value in NOT_FINITE, f"not a constant: {value!r}"
    assert not isinstance(value, float) or math.isfinite(value), "write a value that is not finite as a string"
    if isinstance(value, bool) is not (dtype is DType.B1):
        raise Mismatch(
            f"{value} is not a value of {dtype}", "use `true` or `false` for b1, a number for other dtypes", "E0204"
        )
    if dtype.is_int:
        if not isinstance(value, int | Poly):
            raise Mismatch(f"{value} is not a value of {dtype}", "write an integer or use `cast`", "E0204")
        low, high = dtype.limits
        least, most = bounds(value)
        if least < low or most > high:
            raise Mismatch(f"{value} does not fit {dtype}", f"{dtype} holds {low} to {high}", "E0209")


class Full(Op):
    """full(shape, value): a tensor of this shape with the same value everywhere.

    Attributes: ``value`` (a number, a bool for b1, a size, or ``"inf"``, ``"-inf"``, ``"nan"``), ``dtype``, ``shape``.
    """

    name = "full"
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "full takes no inputs"
        dtype = dtype_attr(attrs)
        _check(attrs["value"], dtype)
        return (TensorType(dtype, shape_attr(attrs)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        value = attrs["value"]
        dtype = numpy_dtype(attrs["dtype"])
        return [np.full(tuple(attrs["shape"]), float(value) if isinstance(value, str) else value, dtype)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


full = register(Full())


def constant(b: Builder, value: float | bool, like: Value) -> Value:
    """A constant of rank 0 of the dtype of ``like``, for gradients."""
    return b(full, value=as_attr(value), dtype=like.type.dtype, shape=())


class FullFunction(Function):
    """full(shape, value): a float tensor of this shape with ``value`` everywhere.

    given: x: [B, 8]
    >>> x + full([B, 8], 0.5)
    """

    name = "full"
    not_finite = frozenset({"value"})

    def build(self, call: Call, shape: Shape, value: float) -> Value:
        return call.emit(full, value=as_attr(value), dtype=DType.FLOAT, shape=shape)


class Zeros(Function):
    """zeros(shape): a float tensor of zeros.

    given: x: [B, 8]
    >>> concat([x, zeros([B, 2])])
    """

    name = "zeros"

    def build(self, call: Call, shape: Shape) -> Value:
        return call.emit(full, value=0.0, dtype=DType.FLOAT, shape=shape)


class Ones(Function):
    """ones(shape): a float tensor of ones.

    given: x: [B, 8]
    >>> x + ones([8])
    """

    name = "ones"

    def build(self, call: Call, shape: Shape) -> Value:
        return call.emit(full, value=1.0, dtype=DType.FLOAT, shape=shape)


function(FullFunction())
function(Zeros())
function(Ones())
