"""cast, and stop_gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import dtype_attr
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, Unary, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.written_dtypes import dtype_named
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Cast(Elementwise):
    """cast(x): the same values in the dtype of the attribute ``dtype``.

    Float to float rounds to nearest. Float to integer truncates towards zero and saturates at the limits of the dtype;
    nan becomes 0. Integer to integer keeps the low bits. To b1: true unless 0; from b1: 0 or 1. The scalar tree is the
    argument itself: the store converts.
    """

    name = "cast"
    wide = "position"
    arity = 1
    accepts = "any"

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        return dtype_attr(attrs)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        x, dtype = xs[0], numpy_dtype(attrs["dtype"])
        if x.dtype.kind != "f" or dtype.kind not in "iu":
            return x.astype(dtype)
        limits = np.iinfo(dtype.name)
        inside = (x >= float(limits.min)) & (x < float(limits.max) + 1)
        result = np.where(inside, x, x.dtype.type(0)).astype(dtype)
        # no float equals the upper limit of i64, so values outside are set after the conversion
        result[x < float(limits.min)] = limits.min
        result[x >= float(limits.max) + 1] = limits.max
        return result

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        source = node.inputs[0].type.dtype
        if not source.is_float or not node.out.type.dtype.is_float:
            return (None,)
        return (b(cast, only(dys), dtype=source),)


class StopGradient(Elementwise):
    """stop_gradient(x): ``x``; no gradient flows through it.

    given: x: [B, 8]
    >>> x * stop_gradient(x)
    """

    name = "stop_gradient"
    arity = 1
    accepts = "any"
    view = True

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return xs[0]

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


cast = register(Cast())
stop_gradient = register(StopGradient())


class CastFunction(Function):
    """cast(x, dtype): the same values in another dtype: "float", "f64", "f32", "f16", "bf16", or one of the integers
    "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", or "b1".

    Float to integer truncates towards zero and saturates at the limits of the dtype; nan becomes 0. Integer to integer
    keeps the low bits. To b1: true unless 0. Gradients flow only between floats, in the dtype of each value.

    "float" is the dtype that `precision` selects. The other floats stay as written, whatever `precision` says: cast
    back to "float" before they meet weights or other floats. Floats round to the nearest value, ties to even.

    given: t: i32[B]
    >>> cast(t, "float") / 2
    """

    name = "cast"

    def build(self, call: Call, x: Value, dtype: str) -> Value:
        known = dtype_named(self.name, dtype)
        return x if x.type.dtype is known else call.emit(cast, x, dtype=known)


function(CastFunction())
function(Unary(stop_gradient))
