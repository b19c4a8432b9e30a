"""Constants: ``full`` and the functions ``full``, ``zeros`` and ``ones``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Number, Numbers, Shape, function
from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Poly, Size, bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import NOT_FINITE, dtype_attr, shape_attr
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.written_dtypes import dtype_named
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def as_attr(value: float | Size) -> Attr:
    """A number as the attribute ``value`` of ``full``."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _check(value: Attr, dtype: DType) -> None:
    assert isinstance(value, bool | int | float | Poly) or value in NOT_FINITE, f"not a constant: {value!r}"
    assert not isinstance(value, float) or math.isfinite(value), "write a value that is not finite as a string"
    if isinstance(value, bool) is not (dtype is DType.B1):
        shown = str(value).lower() if isinstance(value, bool) else value
        help = "use `true` or `false` for b1, a number for other dtypes"
        raise Mismatch(f"{shown} is not a value of {dtype}", help, "E0204")
    if dtype.is_int:
        if not isinstance(value, int | Poly):
            raise Mismatch(f"{value} is not a value of {dtype}", "write an integer or use `cast`", "E0204")
        low, high = dtype.limits
        least, most = bounds(value)
        if least < low or most > high:
            help = f"{dtype} holds {low} to {high}{same_bits(value, dtype)}"
            raise Mismatch(f"{value} does not fit {dtype}", help, "E0209")


def same_bits(value: Attr, dtype: DType) -> str:
    """A part of a help: the number of ``dtype`` with the bits of ``value``, which only the other signedness holds. The
    constants of hashes are written as unsigned numbers."""
    width = 8 * dtype.itemsize
    if not isinstance(value, int) or not -(2 ** (width - 1)) <= value < 2**width:
        return ""
    return f"; {value - 2**width if value > 0 else value + 2**width} has the same bits"


class Full(Op):
    """full(shape, value): a tensor of this shape with the same value everywhere.

    Attributes: ``value`` (a number, a bool for b1, a size, or ``"inf"``, ``"-inf"``, ``"nan"``), ``dtype``, ``shape``.
    """

    name = "full"
    in_halves = True
    cheap = True
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


def of_dtype(value: Any, dtype: DType) -> Any:
    """A number or bool of the language as a value of a dtype: an int may be a float. Raises Mismatch E0204, E0209."""
    if dtype.is_float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    _check(as_attr(value), dtype)
    return value


class FullFunction(Function):
    """full(shape, value, dtype="float"): a tensor of this shape with ``value`` everywhere.

    ``dtype``: "float", "f32", "f64", an integer, or "b1".

    given: x: [B, 8]
    >>> x + full([B, 8], 0.5)
    """

    name = "full"

    def build(self, call: Call, shape: Shape, value: Numbers, dtype: str = "float") -> Value:
        if isinstance(value, list | tuple):
            raise Mismatch("`value` of `full` is a list", "`tensor` makes a tensor of a list", "E0202")
        return _filled(call, self.name, shape, value, dtype)


def _filled(call: Call, function: str, shape: Shape, value: Number, dtype: str) -> Value:
    known = dtype_named(function, dtype)
    return call.emit(full, value=as_attr(of_dtype(value, known)), dtype=known, shape=shape)


class Zeros(Function):
    """zeros(shape, dtype="float"): a tensor of zeros; of ``false`` for the dtype "b1".

    given: x: [B, 8]
    >>> concat([x, zeros([B, 2])])
    """

    name = "zeros"

    def build(self, call: Call, shape: Shape, dtype: str = "float") -> Value:
        return _filled(call, self.name, shape, False if dtype == "b1" else 0, dtype)


class Ones(Function):
    """ones(shape, dtype="float"): a tensor of ones; of ``true`` for the dtype "b1".

    given: x: [B, 8]
    >>> x + ones([8])
    """

    name = "ones"

    def build(self, call: Call, shape: Shape, dtype: str = "float") -> Value:
        return _filled(call, self.name, shape, True if dtype == "b1" else 1, dtype)


function(FullFunction())
function(Zeros())
function(Ones())
