"""logcumsumexp: sums of exponentials of all elements up to each one, as logarithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.pull_back import Recorder, through
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, mul, only, require_kind, sub
from dslc.compiler.ops.elementwise.transcendental import exp
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.recurrence import before, recurrence

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class LogCumSumExp(Op):
    """logcumsumexp(x): ``log(cumsum(exp(x)))`` along ``axis``; with ``reverse``, of each element and all after it.

    Attributes ``axis`` (from 0) and ``reverse``. What is carried is the greatest element and the sum of all others,
    relative to it: so nothing overflows, and sums near 1 keep the digits of their logarithms.
    """

    name = "logcumsumexp"
    input_reads = 1
    wide = "exponent"
    needs = (frozenset({"x0", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        bool_attr(attrs, "reverse")
        require_kind(self.name, x.dtype, "float")
        assert 0 <= int_attr(attrs, "axis") < x.rank
        return (x,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        axis, reverse = node.attrs["axis"], node.attrs["reverse"]
        return (b(logcumsumexp_grad, node.inputs[0], node.out, only(dys), axis=axis, reverse=reverse),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x = np.moveaxis(xs[0], attrs["axis"], 0)
        y, one = np.empty_like(x), x.dtype.type(1)
        top, others = np.full(x.shape[1:], -np.inf, x.dtype), np.zeros(x.shape[1:], x.dtype)
        with np.errstate(all="ignore"):
            for i in _order(len(x), attrs["reverse"]):
                less = np.exp(np.where(x[i] == top, 0 * one, -np.abs(x[i] - top)))
                others = np.where(x[i] <= top, others + less, less * (one + others))
                top = np.maximum(top, x[i])
                y[i] = top + np.log1p(others)
        return [np.ascontiguousarray(np.moveaxis(y, 0, attrs["axis"]))]

    def cost(self, node: Node) -> Cost:
        y = node.types[0]
        return Cost(6 * (y.bytes // y.dtype.itemsize), 2 * y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[0] == int_attr(node.attrs, "axis") else (axes[0],)


class LogCumSumExpGrad(Op):
    """logcumsumexp_grad(x, y, dy): of each element, the sum of ``dy[t] * exp(x - y[t])`` over all t from it on.

    Attributes as those of the forward op. A recurrence from the other end, ``h[i] = dy[i] + exp(y[i] - y[i+1]) *
    h[i+1]``, in which no factor is above 1; the result is ``exp(x - y) * h``. What is -inf in ``x`` gets 0.
    """

    name = "logcumsumexp_grad"
    wide = "exponent"
    needs = (frozenset({"x0", "x1", "x2"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, y, dy = types
        bool_attr(attrs, "reverse")
        assert x == y == dy and x.dtype.is_float and 0 <= int_attr(attrs, "axis") < x.rank
        return (x,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, y, dy = node.inputs
        axis, reverse = int_attr(node.attrs, "axis"), bool_attr(node.attrs, "reverse")
        parts = Recorder().at(node, b.phase)
        factors = parts(exp, parts(sub, y, before(parts, y, axis, not reverse, float("inf"))))
        sums = parts(recurrence, factors, dy, axis=axis, reverse=not reverse, late=False)
        found = parts(mul, parts(exp, parts(sub, x, y)), sums)
        return through(parts.made, [found], node.inputs, dys, b)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, y, dy = (np.moveaxis(each, attrs["axis"], 0) for each in xs)
        most = np.finfo(x.dtype).max
        kept = np.clip(y, -most, most)
        result, h, last = np.empty_like(x), np.zeros_like(x[:1]).sum(0), None
        with np.errstate(all="ignore"):
            for i in reversed(_order(len(x), attrs["reverse"])):
                h = dy[i] if last is None else np.exp(kept[i] - kept[last]) * h + dy[i]
                result[i], last = np.exp(np.minimum(x[i], most) - kept[i]) * h, i
        return [np.ascontiguousarray(np.moveaxis(result, 0, attrs["axis"]))]

    def cost(self, node: Node) -> Cost:
        x = node.types[0]
        return Cost(6 * (x.bytes // x.dtype.itemsize), 4 * x.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if len(set(axes)) == 1 and axes[0] != int_attr(node.attrs, "axis") else None


def _order(count: int, reverse: bool) -> range:
    return range(count - 1, -1, -1) if reverse else range(count)


logcumsumexp = register(LogCumSumExp())
logcumsumexp_grad = register(LogCumSumExpGrad())


class LogCumSumExpFunction(Function):
    """logcumsumexp(x, axis=-1, reverse=false): ``log(cumsum(exp(x)))`` along an axis, without overflow.

    With ``reverse``, of each element and all after it.

    given: x: [B, 8]
    >>> logcumsumexp(x, axis=1)
    """

    name = "logcumsumexp"

    def build(self, call: Call, x: Value, axis: Axis = -1, reverse: bool = False) -> Value:
        require_kind(self.name, x.type.dtype, "float")
        return call.emit(logcumsumexp, x, axis=from_zero(self.name, x.type, axis), reverse=reverse)


function(LogCumSumExpFunction())
