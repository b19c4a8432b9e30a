"""literal: a small constant tensor with its values written out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import NOT_FINITE, dtype_attr, ints_attr
from dslc.compiler.ops.constants.constant import as_attr
from dslc.compiler.ops.lazy import np
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.function import Call
    from dslc.compiler.ir.op import Array


#: most values that a kernel writes into its code; a function stores more of them (ir/function.py: Call.constant)
MOST_WRITTEN: Final = 64


class Literal(Op):
    """literal(): a constant tensor.

    Attributes: ``values`` in row-major order, ``shape`` of ints, and ``dtype``. The values are bools for b1, ints for
    an integer dtype, and for a float dtype, to which each is rounded once, floats or ``"inf"``, ``"-inf"``, ``"nan"``.
    """

    name = "literal"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "literal takes no inputs"
        values, shape, dtype = attrs["values"], ints_attr(attrs, "shape"), dtype_attr(attrs)
        assert isinstance(values, tuple) and len(values) == math.prod(shape)
        kind = float if dtype.is_float else int if dtype.is_int else bool
        for value in values:
            finite = type(value) is kind and math.isfinite(value)
            assert finite or (dtype.is_float and value in NOT_FINITE), f"{value!r} is no value of {dtype}"
        return (TensorType(dtype, shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        values = [as_number(v) for v in attrs["values"]]
        return (np.array(values, numpy_dtype(attrs["dtype"])).reshape(tuple(attrs["shape"])),)

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


literal = register(Literal())


def as_number(value: Any) -> float | int | bool:
    """A value of the attribute ``values``, and of the attribute ``value`` of ``full``, as a number."""
    return float(value) if isinstance(value, str) else value


def of_numbers(
    call: Call, numbers: Sequence[float], shape: Sequence[int], dtype: DType = DType.FLOAT, stored: DType = DType.F64
) -> Value:
    """A constant of written numbers in row-major order, floats for a float dtype. ``stored``: the dtype of the array
    that holds them where the artifact does. A few numbers need no array, so ``dslc check`` imports no numpy for them;
    f32 does, which rounds what is written."""
    if len(numbers) > MOST_WRITTEN or stored is DType.F32:
        return call.constant(np.array(numbers, numpy_dtype(stored.value)).reshape(shape), dtype)
    return call.emit(literal, values=tuple(map(as_attr, numbers)), shape=tuple(shape), dtype=dtype)


def attributes(array: Array, dtype: DType) -> dict[str, Any]:
    """The attributes of a literal with the numbers of an array."""
    flat = array.ravel()
    values = flat.astype(np.float64).tolist() if dtype.is_float else flat.tolist()
    return {"values": tuple(as_attr(v) for v in values), "shape": array.shape, "dtype": dtype}
