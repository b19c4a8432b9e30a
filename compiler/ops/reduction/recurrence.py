"""recurrence: a linear recurrence along an axis, of which the gradients of running products consist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, mul, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.slicing import pad, slice_

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Recurrence(Op):
    """recurrence(a, b): ``y[i] = a[i] * y[i-1] + b[i]`` along ``axis``, and ``y[0] = b[0]``; one after the other.

    Attributes ``axis`` (from 0); ``reverse``: from the last element to the first; ``late``: each element takes the
    factor of the one before it, ``y[i] = a[i-1] * y[i-1] + b[i]``. Floats in f32 (f64), rounded once.
    """

    name = "recurrence"
    needs = (frozenset({"x0", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        a, b = types
        bool_attr(attrs, "reverse")
        bool_attr(attrs, "late")
        assert a == b and a.dtype.is_float and 0 <= int_attr(attrs, "axis") < a.rank
        return (a,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """The sum runs back: ``db[i] = dy[i] + a[i+1] * db[i+1]``; ``da[i] = db[i] * y[i-1]``."""
        a, dy = node.inputs[0], only(dys)
        axis, reverse, late = (node.attrs[name] for name in ("axis", "reverse", "late"))
        db = b(recurrence, a, dy, axis=axis, reverse=not reverse, late=not late)
        y, axis, reverse = node.out, int_attr(node.attrs, "axis"), bool_attr(node.attrs, "reverse")
        da = b(mul, before(b, db, axis, not reverse), y) if late else b(mul, db, before(b, y, axis, reverse))
        return da, db

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        dtype = np.result_type(xs[0].dtype, np.float32)
        a, b = (np.moveaxis(x, attrs["axis"], 0).astype(dtype) for x in xs)
        y = np.zeros_like(b)
        order = range(len(b) - 1, -1, -1) if attrs["reverse"] else range(len(b))
        carry = np.zeros_like(b[0]) if len(b) else None
        with np.errstate(all="ignore"):
            for i in order:
                y[i] = carry + b[i] if attrs["late"] else a[i] * carry + b[i]
                carry = a[i] * y[i] if attrs["late"] else y[i]
        return [np.ascontiguousarray(np.moveaxis(y, 0, attrs["axis"])).astype(xs[1].dtype)]

    def cost(self, node: Node) -> Cost:
        x = node.types[0]
        return Cost(2 * (x.bytes // x.dtype.itemsize), 3 * x.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] == axes[1] and axes[0] != int_attr(node.attrs, "axis") else None


def before(b: Builder, x: Value, axis: int, reverse: bool, first: float = 0.0) -> Value:
    """The element before each one along ``axis``, ``first`` for the first; with ``reverse`` the element after it."""
    shape = x.type.ints
    if not shape[axis]:
        return x
    one, none = tuple(int(i == axis) for i in range(len(shape))), (0,) * len(shape)
    starts, low, high = (one, none, one) if reverse else (none, one, none)
    stops = tuple(n - (not reverse and i == axis) for i, n in enumerate(shape))
    part = b(slice_, x, starts=starts, stops=stops, steps=(1,) * len(shape))
    return b(pad, part, low=low, high=high, interior=none, value=first)


recurrence = register(Recurrence())
