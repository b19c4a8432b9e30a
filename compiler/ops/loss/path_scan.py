"""path_scan: weighted sums along the paths of a sequence, and the gradient of path_loss that has gradients itself.

The derivative of a logarithm of sums is a sum with weights that add up to 1, so it neither overflows nor vanishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.constants.constant import constant, full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, div, mul, neg, only, sub
from dslc.compiler.ops.elementwise.convert import cast, stop_gradient
from dslc.compiler.ops.elementwise.logic import eq, logical_and, logical_or, lt, ne
from dslc.compiler.ops.elementwise.selection import maximum, minimum, where
from dslc.compiler.ops.elementwise.transcendental import exp
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.reduce import max_, sum_
from dslc.compiler.ops.shape.slicing import pad, slice_
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: A path goes from one time to the next by so many states.
STEPS: Final = (0, 1, 2)


class PathScan(Op):
    """path_scan(x, stay, one, two): sums along the paths through [B, T, S], each step of a path times its weight.

    ``y[t, s] = x[t, s] + stay[t, s] * y[t-1, s] + one[t, s] * y[t-1, s-1] + two[t, s] * y[t-1, s-2]``. With the
    attribute ``back`` the same steps lead backward: ``y[t, s]`` gets ``y[t+1, s+k]`` times the weight at [t+1, s+k].
    A step from outside of the tensor adds nothing, whatever its weight. In f32 or f64.
    """

    name = "path_scan"
    statistics = (0, 1, 2, 3)
    needs = (frozenset({"x1", "x2", "x3", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        bool_attr(attrs, "back")
        assert types[0].rank == 3 and types[0].dtype in (DType.FLOAT, DType.F32, DType.F64)
        assert len(types) == 4 and all(t == types[0] for t in types)
        return (types[0],)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """The sums that lead the other way, and for the weight of a step: what arrives times what leaves."""
        back = bool_attr(node.attrs, "back")
        dx = b(path_scan, only(dys), *node.inputs[1:], back=not back)
        later, earlier = (node.out, dx) if back else (dx, node.out)
        return dx, *(b(mul, later, before(b, earlier, step, 0.0)) for step in STEPS)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, *weights = xs
        y, times, count = x.copy(), x.shape[1], x.shape[2]
        with np.errstate(all="ignore"):
            for t in range(times - 2, -1, -1) if attrs["back"] else range(1, times):
                for step, weight in zip(STEPS, weights):
                    low, high = slice(0, max(count - step, 0)), slice(min(step, count), count)
                    if attrs["back"]:
                        y[:, t, low] += weight[:, t + 1, high] * y[:, t + 1, high]
                    else:
                        y[:, t, high] += weight[:, t, high] * y[:, t - 1, low]
        return [y]

    def cost(self, node: Node) -> Cost:
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(6 * prod(node.types[0].ints), moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (0,) if set(axes) == {0} else None


path_scan = register(PathScan())


def before(b: Builder, x: Value, step: int, value: float | str) -> Value:
    """``x`` [B, T, S] at the time before and ``step`` states before, ``value`` outside."""
    rows, times, count = x.type.ints
    none = (0, 0, 0)
    filled: dict[str, Any] = {"high": none, "interior": none, "value": value}
    moved = b(pad, x, low=(0, 1, step), **filled)
    return b(slice_, moved, starts=none, stops=(rows, times, count), steps=(1, 1, 1))


def slopes(b: Builder, inputs: Sequence[Value], outputs: Sequence[Value], dys: Gradients) -> Value:
    """The gradient of the scores of a path_loss by ops that have gradients of any order.

    ``inputs`` and ``outputs`` are the node's, ``dys`` the gradients of the loss and of the sums. Forward sums of no
    path and scores of times that do not count have the gradient 0, whatever they are.
    """
    x, skips, times, states = inputs
    loss, sums = outputs
    rows, lengths, count = x.type.ints
    wide = DType.I64
    time, state = (
        b(reshape, b(cast, b(arange, shape=(n,), start=0, step=1), dtype=wide), shape=shape)
        for n, shape in ((lengths, (1, lengths, 1)), (count, (1, 1, count)))
    )
    ends = (b(reshape, b(cast, each, dtype=wide), shape=(rows, 1, 1)) for each in (times, states))
    limit, end = (
        b(minimum, b(maximum, each, constant(b, low, time)), constant(b, high, time))
        for each, low, high in zip(ends, (0, 1), (lengths, count))
    )
    one = constant(b, 1, time)
    given = dys[1]
    if dys[0] is not None:
        last = b(logical_or, b(eq, state, b(sub, end, one)), b(eq, b(add, state, one), b(sub, end, one)))
        last = b(logical_and, last, b(eq, time, b(sub, limit, one)))
        share = _ending(b, sums, last, b(reshape, loss, shape=(rows, 1, 1)))
        arrives = b(neg, b(mul, b(reshape, dys[0], shape=(rows, 1, 1)), share))
        given = arrives if given is None else b(add, given, arrives)
    assert given is not None, "a gradient reaches the loss or the sums"
    found = b(path_scan, given, *_weights(b, skips, sums, b(lt, time, limit)), back=True)
    found = b(where, b(ne, sums, _float(b, "-inf", sums)), found, constant(b, 0.0, sums))
    return found if x.type.dtype is found.type.dtype else b(cast, found, dtype=x.type.dtype)


def _ending(b: Builder, sums: Value, last: Value, loss: Value) -> Value:
    """The share of each of the ``last`` states in the sum of all paths; nan there if the loss is.

    Of the sums alone: with the loss, which is rounded apart from them, the share of a single path would not be 1."""
    none, zero = _float(b, "-inf", sums), constant(b, 0.0, sums)
    known = b(logical_and, last, b(ne, sums, none))
    top = b(max_, b(where, known, sums, none), over=(1, 2), keep=True)
    some = b(ne, top, none)
    top = b(stop_gradient, b(where, some, top, zero))  # the shares do not depend on it
    part = b(where, known, b(exp, b(where, known, b(sub, sums, top), zero)), zero)
    whole = b(where, some, b(sum_, part, over=(1, 2), keep=True), constant(b, 1.0, sums))
    wrong = b(logical_and, last, b(ne, loss, loss))
    return b(where, wrong, _float(b, "nan", sums), b(div, part, whole))


def _weights(b: Builder, skips: Value, sums: Value, counts: Value) -> list[Value]:
    """The share of each step in the sum of those that reach a state at a time: they add up to 1, or to 0 where none
    does. ``counts``: the times that count."""
    rows, _, count = sums.type.ints
    none, zero, unit = _float(b, "-inf", sums), constant(b, 0.0, sums), constant(b, 1.0, sums)
    near = [before(b, sums, step, "-inf") for step in STEPS]
    known = [b(logical_and, b(ne, each, none), counts) for each in near]
    known[2] = b(logical_and, known[2], b(reshape, skips, shape=(rows, 1, count)))
    some = b(logical_or, b(logical_or, known[0], known[1]), known[2])
    tops = [b(where, flag, each, none) for flag, each in zip(known, near)]
    top = b(where, some, b(maximum, b(maximum, tops[0], tops[1]), tops[2]), zero)
    top = b(stop_gradient, top)  # the shares do not depend on it
    # where no step leads, a finite number takes its place: the gradient of a branch not chosen is 0 times that branch's
    apart = [b(where, flag, b(sub, each, top), zero) for flag, each in zip(known, near)]
    parts = [b(where, flag, b(exp, each), zero) for flag, each in zip(known, apart)]
    whole = b(where, some, b(add, b(add, parts[0], parts[1]), parts[2]), unit)
    return [b(div, part, whole) for part in parts]


def _float(b: Builder, value: str, like: Value) -> Value:
    """``"-inf"`` or ``"nan"`` as a constant of rank 0."""
    return b(full, value=value, dtype=like.type.dtype, shape=())
