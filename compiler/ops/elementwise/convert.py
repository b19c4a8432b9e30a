"""cast, bitcast and stop_gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType, TensorType
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
    in_halves = True
    cheap = True
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


class Bitcast(Op):
    """bitcast(x): the same bits as numbers of the dtype of the attribute ``dtype``, which has the same width.

    A view, at no cost. Not of b1, whose bytes are 0 or 1, nor of the abstract float, whose width `precision` selects.
    """

    name = "bitcast"
    mirror = True
    view = True
    inplace = ((0, 0),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x], dtype = types, dtype_attr(attrs)
        for known, help in ((x.dtype, 'convert it first: `cast(x, "f32")`'), (dtype, 'name a dtype such as "i32"')):
            if known in (DType.FLOAT, DType.B1):
                why = "whose width `precision` selects" if known is DType.FLOAT else "whose bytes are 0 or 1"
                raise Mismatch(f"`bitcast` with {known}, {why}", help, "E0209")
        if x.dtype.itemsize != dtype.itemsize:
            why = f"`bitcast` of {8 * x.dtype.itemsize} bits to {dtype}, which has {8 * dtype.itemsize}"
            raise Mismatch(why, "choose a dtype of the same width", "E0209")
        return (TensorType(dtype, x.shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [xs[0].view(numpy_dtype(attrs["dtype"]))]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 0)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],)


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
bitcast = register(Bitcast())
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


class BitcastFunction(Function):
    """bitcast(x, dtype): the same bits as numbers of another dtype of the same width, as PyTorch's ``x.view(dtype)``.

    From and to "f64", "f32", "f16", "bf16" and integers; ``cast`` a float tensor to one of them first. It costs
    nothing, and no gradient flows through it. To build a float, ``bitcast`` its sign, exponent and significand.

    given: x: [B, 8]
    >>> exponent = bitwise_right_shift(bitcast(cast(abs(x), "f32"), "i32"), 23) - 127
    """

    name = "bitcast"

    def build(self, call: Call, x: Value, dtype: str) -> Value:
        known = dtype_named(self.name, dtype)
        return x if x.type.dtype is known and known is not DType.FLOAT else call.emit(bitcast, x, dtype=known)


function(CastFunction())
function(BitcastFunction())
function(Unary(stop_gradient))
