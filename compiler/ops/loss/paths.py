"""path_loss: the probability of all monotone paths through the states of a sequence, which ctc adds up.

Forward and backward in the logarithm (Graves, Fernandez, Gomez, Schmidhuber 2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Phase
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.loss.path_scan import slopes

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_WIDE = {DType.F16: DType.F32, DType.BF16: DType.F32}


def _check(types: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
    """The types of the loss and of the forward sums, f32 for 16-bit floats; raises Mismatch."""
    x, skips, times, states = types
    assert x.rank == 3 and x.dtype.is_float and skips == TensorType(DType.B1, (x.shape[0], x.shape[2]))
    assert times.dtype.is_int and states.dtype.is_int and times.shape == states.shape == x.shape[:1]
    if min(bounds(x.shape[1])[0], bounds(x.shape[2])[0]) < 1:
        raise Mismatch(f"paths through {x}", "at least one time and one state", "E0308")
    dtype = _WIDE.get(x.dtype, x.dtype)
    return TensorType(dtype, x.shape[:1]), TensorType(dtype, x.shape)


def _log_sum(*xs: Array) -> Array:
    """The logarithm of the sum of exponentials, -inf for none."""
    top = xs[0]
    for x in xs[1:]:
        top = np.maximum(top, x)
    safe = np.where(top == -np.inf, top.dtype.type(0), top)
    total = np.exp(xs[0] - safe)
    for x in xs[1:]:
        total = total + np.exp(x - safe)
    return np.where(top == -np.inf, top, safe + np.log(total))


def _shifted(x: Array, by: int, fill: float) -> Array:
    """Along the last axis, element i is that of ``i - by``."""
    y = np.full_like(x, fill)
    if by > 0:
        y[:, by:] = x[:, :-by]
    else:
        y[:, :by] = x[:, -by:]
    return y


def _moves(x: Array, skips: Array, back: bool) -> Array:
    """``x`` of each state with those of the states one and two before it added, or after it."""
    if back:
        one, two = _shifted(x, -1, -np.inf), _shifted(np.where(skips, x, x.dtype.type(-np.inf)), -2, -np.inf)
    else:
        one, two = _shifted(x, 1, -np.inf), np.where(skips, _shifted(x, 2, -np.inf), x.dtype.type(-np.inf))
    return _log_sum(x, one, two)


class PathLoss(Op):
    """path_loss(x, skips, times, states): minus the logarithm of the sum of all paths' exponentials, for each row.

    ``x`` [B, T, S] holds a score for each state at each time. A path begins in state 0 or 1 at time 0, stays in its
    state or goes one up each time, or two where ``skips`` [B, S] of the new state, and ends at time ``times - 1`` in
    one of the last two of ``states`` states. Its score is the sum of what it meets. Infinity if there is no path; nan
    if ``times`` is not in 0..T or ``states`` not in 1..S. The second output, for the gradient: the logarithm of the sum
    over all beginnings of paths that end in a state at a time. Both are f32 for 16-bit floats.

    The gradient is path_loss_grad; a gradient that has a gradient itself is composed around path_scan.
    """

    name = "path_loss"
    wide = "exponent"
    needs = (frozenset({"x0", "x1", "x2", "x3", "y0", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return _check(types)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        if b.phase is Phase.GRADIENT or dys[1] is not None:
            return slopes(b, node.inputs, node.outputs, dys), None, None, None
        return b(path_loss_grad, *node.inputs, *node.outputs, only(dys[:1])), None, None, None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, skips, times, states = xs
        rows, lengths, count = x.shape
        sums = np.full_like(x, -np.inf)
        with np.errstate(all="ignore"):
            sums[:, 0, :2] = x[:, 0, :2]
            for t in range(1, lengths):
                sums[:, t] = x[:, t] + _moves(sums[:, t - 1], skips, False)
            row, last, end = np.arange(rows), np.clip(times, 1, lengths) - 1, np.clip(states, 1, count) - 1
            before = np.where(end > 0, sums[row, last, np.maximum(end - 1, 0)], x.dtype.type(-np.inf))
            loss = -_log_sum(sums[row, last, end], before)
            loss = np.where(times == 0, np.where(states == 1, loss.dtype.type(0), loss.dtype.type(np.inf)), loss)
            wrong = (times < 0) | (times > lengths) | (states < 1) | (states > count)
            return [np.where(wrong, loss.dtype.type(np.nan), loss), sums]

    def cost(self, node: Node) -> Cost:
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(10 * prod(node.input_types[0].ints), moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (0, 0) if set(axes) == {0} else None


class PathLossGrad(Op):
    """path_loss_grad(x, skips, times, states, loss, sums, dy): minus ``dy`` times the share of the paths' sum that
    passes a state at a time; 0 where there is no path."""

    name = "path_loss_grad"
    statistics = (4, 5, 6)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        loss, sums = _check(types[:4])
        assert list(types[4:]) == [loss, sums, loss]
        return (types[0],)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("a gradient that has a gradient is composed around path_scan")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, skips, times, states, loss, sums, dy = xs
        lengths, count = x.shape[1:]
        limit, state = np.clip(times, 0, lengths)[:, None], np.arange(count)
        end = np.clip(states, 1, count)[:, None] - 1
        ends = np.where((state == end) | (state == end - 1), x.dtype.type(0), x.dtype.type(-np.inf))
        dx, after = np.zeros_like(x), np.full_like(ends, -np.inf)
        with np.errstate(all="ignore"):
            for t in range(lengths - 1, -1, -1):
                rest = np.where(t == limit - 1, ends, _moves(after, skips, True))
                share = np.exp(sums[:, t] + rest + loss[:, None])
                dx[:, t] = np.where((t < limit) & (loss != np.inf)[:, None], -dy[:, None] * share, x.dtype.type(0))
                after = rest + x[:, t]
        return [dx]

    def cost(self, node: Node) -> Cost:
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(14 * prod(node.input_types[0].ints), moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (0,) if set(axes) == {0} else None


path_loss = register(PathLoss())
path_loss_grad = register(PathLossGrad())
