"""Elements moved round along axes: roll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Roll(Op):
    """roll(x): element i of axis a moves to ``i + shifts[a]``; those that leave come in at the other end.

    Attribute ``shifts``: an int of either sign, of any size, for each axis.
    """

    name = "roll"
    by_axis = ("shifts",)
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert len(ints_attr(attrs, "shifts")) == types[0].rank, "roll needs a shift for each axis"
        return (types[0],)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(roll, only(dys), shifts=tuple(-s for s in ints_attr(node.attrs, "shifts"))),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x], shifts = xs, int_tuple(attrs, "shifts")
        return [np.roll(x, [s % max(1, n) for s, n in zip(shifts, x.shape)], tuple(range(x.ndim)))]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 2 * node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        moved = axes[0] is not None and ints_attr(node.attrs, "shifts")[axes[0]] != 0
        return None if moved else (axes[0],)


class RollFunction(Function):
    """roll(x, shift, axis=-1): elements shifted along an axis; those that leave at one end enter at the other.

    A negative shift moves towards the start: ``roll(x, -1, axis=0)`` begins with ``x[1]`` and ends with ``x[0]``. Lists
    of shifts and axes, of equal lengths, move along several axes.

    given: x: [B, 8, 8]
    >>> roll(x, [-2, 3], axis=[1, 2])
    """

    name = "roll"

    def build(self, call: Call, x: Value, shift: Ints, axis: Ints = (-1,)) -> Value:
        axes = [from_zero(self.name, x.type, each) for each in axis]
        if len(set(axes)) < len(axes):
            raise Mismatch(f"`roll` along an axis twice, {list(axis)}", "add its shifts up", "E0306")
        if len(shift) != len(axis):
            raise Mismatch(f"{len(shift)} shifts for {len(axis)} axes", "give each axis its shift", "E0209")
        shifts = [0] * x.type.rank
        for by, at in zip(shift, axes):
            shifts[at] = by
        return call.emit(roll, x, shifts=tuple(shifts)) if any(shifts) else x


roll = register(Roll())
function(RollFunction())
