"""ramp: equally spaced numbers, and the function linspace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import dtype_attr, float_attr, int_tuple, shape_attr
from dslc.compiler.ops.constants.known import number_or
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, mul, sub
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.written_dtypes import float_named
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Ramp(Op):
    """ramp(): the float vector ``start + step * i`` of the attribute ``shape`` [n], computed in f64 and rounded once to
    ``dtype``.

    With the attribute ``stop`` instead of ``step``, the last element is ``stop``, and the step is
    ``(stop - start) / (n - 1)``; n may be a dim.
    """

    name = "ramp"
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "ramp takes no inputs"
        shape, dtype = shape_attr(attrs), dtype_attr(attrs)
        assert len(shape) == 1 and dtype.is_float and ("step" in attrs) is not ("stop" in attrs)
        return (TensorType(dtype, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [count] = int_tuple(attrs, "shape")
        start, step, last = line(attrs, count)
        values = start + step * np.arange(count, dtype=np.float64)
        if last is not None and count:
            values[-1] = last
        with np.errstate(over="ignore"):
            return [values.astype(numpy_dtype(attrs["dtype"]))]

    def cost(self, node: Node) -> Cost:
        return Cost(2 * node.types[0].ints[0], node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


ramp = register(Ramp())


def line(attrs: Mapping[str, Any], count: int) -> tuple[float, float, float | None]:
    """The first element, the step, and the last element if it is given, of a ramp of ``count`` elements."""
    start = float_attr(attrs, "start")
    if "step" in attrs:
        return start, float_attr(attrs, "step"), None
    stop = float_attr(attrs, "stop")
    return (start, (stop - start) / (count - 1), stop) if count > 1 else (start, 0.0, start)


class Linspace(Function):
    """linspace(start, stop, count, dtype="float"): ``count`` equally spaced floats from ``start`` to ``stop``, both
    included.

    As numpy's: computed in f64 and rounded once; a single number is ``start``. All three may be sizes with dims, as in
    ``linspace(0, T - 1, T)``, and both ends tensors of rank 0; then the ends are mixed in the dtype of the result.
    ``dtype``: "float", "f32" or "f64".

    given: x: [B, 8]
    >>> x * linspace(0, 1, 8)
    """

    name = "linspace"

    def build(self, call: Call, start: Operand, stop: Operand, count: Size, dtype: str = "float") -> Value:
        if bounds(count)[0] < 0:
            raise Mismatch(f"`linspace` of {count} numbers", "a count from 0", "E0209")
        start, stop = number_or(start), number_or(stop)
        if isinstance(start, bool) or isinstance(stop, bool):
            raise Mismatch("an end of `linspace` is a bool", "a number or a size", "E0202")
        if not isinstance(start, int | float) or not isinstance(stop, int | float):
            return self._mixed(call, start, stop, count, dtype)
        start, stop = float(start), float(stop)
        if not math.isfinite(stop - start):
            raise Mismatch(f"`linspace` from {start:g} to {stop:g}: the difference overflows", None, "E0209")
        return call.emit(ramp, start=start, stop=stop, shape=(count,), dtype=float_named(self.name, dtype))

    def _mixed(self, call: Call, start: Operand, stop: Operand, count: Size, dtype: str) -> Value:
        known = float_named(self.name, dtype)
        ends = []
        for end in (start, stop):
            x = end if isinstance(end, Value) else call.full(end, known)
            if x.type.shape or x.type.dtype is not known:
                raise Mismatch(f"an end of `linspace` is a tensor {x.type}", "a number, or a tensor of rank 0", "E0205")
            ends.append(x)
        there = call.emit(ramp, start=0.0, stop=1.0, shape=(count,), dtype=known)
        back = call.emit(sub, call.full(1.0, known), there)
        return call.emit(add, call.emit(mul, back, ends[0]), call.emit(mul, there, ends[1]))


function(Linspace())
