"""softmax, log_softmax and logsumexp, all relative to the greatest element, so that no exponential overflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axes, Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, div, mul, neg, only, require_kind, sub
from dslc.compiler.ops.elementwise.transcendental import exp
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.reduce import Reduction, all_axes, require_elements, sum_, widened

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class AlongAxis(Op):
    """An op on a float tensor that handles each line along the attribute ``axis`` separately and keeps the shape."""

    needs = (frozenset({"y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        axis = int_attr(attrs, "axis")
        assert 0 <= axis < types[0].rank
        require_kind(self.name, types[0].dtype, "float")
        require_elements(self.name, [types[0].shape[axis]])
        return (types[0],)

    def cost(self, node: Node) -> Cost:
        y = node.types[0]
        return Cost(5 * (y.bytes // y.dtype.itemsize), 2 * y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[0] == int_attr(node.attrs, "axis") else (axes[0],)


class Softmax(AlongAxis):
    """softmax(x): ``exp(x) / sum(exp(x))`` along the attribute ``axis``; nan if all elements are -inf."""

    name = "softmax"
    input_reads = 3
    wide = "exponent"
    mirror = True

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(softmax_grad, node.out, only(dys), axis=node.attrs["axis"]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        axis = int(attrs["axis"])
        with np.errstate(all="ignore"):
            e = np.exp(xs[0] - np.max(xs[0], axis=axis, keepdims=True))
            return [e / np.sum(e, axis=axis, keepdims=True, dtype=e.dtype)]


class LogSoftmax(AlongAxis):
    """log_softmax(x): ``x - log(sum(exp(x)))`` along the attribute ``axis``."""

    name = "log_softmax"
    input_reads = 3
    wide = "exponent"
    mirror = True

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(log_softmax_grad, node.out, only(dys), axis=node.attrs["axis"]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        axis = int(attrs["axis"])
        with np.errstate(all="ignore"):
            x = xs[0] - np.max(xs[0], axis=axis, keepdims=True)
            return [x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True, dtype=x.dtype))]


class Backward(AlongAxis):
    """The gradient of an op along an axis, from its result y and dy, both of one type."""

    needs = (frozenset({"x0", "x1"}),)
    input_reads = 2

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        y, dy = types
        assert y == dy
        return super().infer((y,), attrs)

    def cost(self, node: Node) -> Cost:
        y = node.types[0]
        return Cost(4 * (y.bytes // y.dtype.itemsize), 3 * y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return super().rows(node, axes[:1]) if axes[0] == axes[1] else None


class SoftmaxGrad(Backward):
    """softmax_grad(y, dy): ``y * (dy - sum(y * dy))`` along the attribute ``axis``."""

    name = "softmax_grad"

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        (y, dy), d, axis = node.inputs, only(dys), int_attr(node.attrs, "axis")
        through, inner = (b(sum_, b(mul, y, v), over=(axis,), keep=True) for v in (d, dy))
        return b(sub, b(mul, d, b(sub, dy, inner)), b(mul, dy, through)), b(softmax_grad, y, d, axis=axis)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        y, dy = xs
        with np.errstate(all="ignore"):
            return [y * (dy - np.sum(y * dy, axis=int(attrs["axis"]), keepdims=True, dtype=y.dtype))]


class LogSoftmaxGrad(Backward):
    """log_softmax_grad(y, dy): ``dy - exp(y) * sum(dy)`` along the attribute ``axis``."""

    name = "log_softmax_grad"

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        (y, dy), d, over = node.inputs, only(dys), (int_attr(node.attrs, "axis"),)
        part = b(mul, d, b(exp, y))
        total = b(sum_, dy, over=over, keep=True)
        return b(neg, b(mul, part, total)), b(sub, d, b(sum_, part, over=over, keep=True))

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        y, dy = xs
        with np.errstate(all="ignore"):
            return [dy - np.exp(y) * np.sum(dy, axis=int(attrs["axis"]), keepdims=True, dtype=y.dtype)]


class LogSumExp(Reduction):
    """logsumexp(x): ``log(sum(exp(x)))`` over the axes ``over``; -inf if all elements are, inf if one is."""

    name = "logsumexp"
    input_reads = 2
    wide = "exponent"
    mirror = True
    kind = "float"
    needs = (frozenset({"x0", "y0"}),)

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        top = np.max(x, axis=over, keepdims=True)
        shift = np.where(np.isfinite(top), top, x.dtype.type(0))
        y = np.log(np.sum(np.exp(x - shift), axis=over, keepdims=True, dtype=x.dtype)) + shift
        return y if keep else np.squeeze(y, axis=over)

    def cost(self, node: Node) -> Cost:
        moved = super().cost(node)
        return Cost(4 * moved.flops, moved.bytes)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        # shares of one sum: the rounding error of a large common offset is in all of them and cancels
        part = b(exp, b(sub, node.inputs[0], widened(b, node, node.out)))
        share = b(div, part, b(sum_, part, over=node.attrs["over"], keep=True))
        return (b(mul, share, widened(b, node, only(dys))),)


softmax = register(Softmax())
log_softmax = register(LogSoftmax())
softmax_grad = register(SoftmaxGrad())
log_softmax_grad = register(LogSoftmaxGrad())
logsumexp = register(LogSumExp())


def _axis(x: Value, axis: int, name: str) -> int:
    if not x.type.rank:
        raise Mismatch(f"`{name}` of a tensor without axes", None, "E0306")
    return axis % x.type.rank


class SoftmaxFunction(Function):
    """softmax(x, axis=-1): positive numbers with sum 1 along an axis, ``exp(x) / sum(exp(x))``.

    given: x: [B, 8]
    >>> softmax(x)
    """

    name = "softmax"

    def build(self, call: Call, x: Value, axis: Axis = -1) -> Value:
        return call.emit(softmax, x, axis=_axis(x, axis, "softmax"))


class LogSoftmaxFunction(Function):
    """log_softmax(x, axis=-1): the logarithm of softmax, ``x - logsumexp(x)``.

    given: x: [B, 8]
    >>> log_softmax(x)
    """

    name = "log_softmax"

    def build(self, call: Call, x: Value, axis: Axis = -1) -> Value:
        return call.emit(log_softmax, x, axis=_axis(x, axis, "log_softmax"))


class LogSumExpFunction(Function):
    """logsumexp(x, over=none, keep=false): ``log(sum(exp(x)))`` over an axis or a list of axes, over all by default.

    ``keep`` leaves the axes with size 1.

    given: x: [B, 8]
    >>> logsumexp(x, over=1)
    """

    name = "logsumexp"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(logsumexp, x, over=all_axes(x, over), keep=keep)


function(SoftmaxFunction())
function(LogSoftmaxFunction())
function(LogSumExpFunction())
