"""norm: the length of vectors; cosine_similarity: the cosine of the angle between two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axes, Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Gradients, abs_, div, mul, only, sign
from dslc.compiler.ops.elementwise.logic import eq
from dslc.compiler.ops.elementwise.powers import pow_, powi, sqrt
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.normalization.moments import check_eps
from dslc.compiler.ops.reduction.reduce import Reduction, all_axes, sum_, widened

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Norm(Reduction):
    """norm(x): ``sum(|x|^p)^(1/p)`` over the axes ``over``, for the attribute ``p`` >= 1; an empty sum gives 0.

    Its gradient at 0 is 0, as in PyTorch.
    """

    name = "norm"
    wide = "reduction"
    kind = "float"
    of_nothing = True
    needs = (frozenset({"x0", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        p = float_attr(attrs, "p")
        if not 1 <= p < math.inf:
            raise Mismatch(
                f"`norm` with p = {p:g}", "p is at least 1; for the maximum norm write `max(abs(x))`", "E0209"
            )
        return super().infer(types, attrs)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, p = np.ascontiguousarray(xs[0]).reshape(xs[0].shape), float(attrs["p"])
        with np.errstate(all="ignore"):
            size = np.abs(x)
            powers = size if p == 1 else np.square(size) if p == 2 else np.power(size, x.dtype.type(p))
            y = np.asarray(self.reduce(powers, tuple(attrs["over"]), bool(attrs["keep"])))
            y = y if p == 1 else np.sqrt(y) if p == 2 else np.power(y, x.dtype.type(1 / p))
            return [np.asarray(y, x.dtype)]

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        return np.sum(x, axis=over, keepdims=keep, dtype=x.dtype)

    def cost(self, node: Node) -> Cost:
        moved = super().cost(node)
        return Cost(2 * moved.flops, moved.bytes)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, p = node.inputs[0], float_attr(node.attrs, "p")
        dy = widened(b, node, only(dys))
        if p == 1:
            return (b(mul, b(sign, x), dy),)
        y = widened(b, node, node.out)
        at_zero = b(eq, y, constant(b, 0.0, y))
        share = b(div, x, b(where, at_zero, constant(b, 1.0, y), y))  # 0 if the whole line is 0
        if p != 2:
            share = b(mul, b(sign, x), _raised(b, b(abs_, share), p - 1))
        return (b(mul, share, dy),)

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value] | None:
        """A root of a sum, which evaluation combines over batches; evaluation needs no gradient at 0."""
        x, p = node.inputs[0], float_attr(node.attrs, "p")
        powers = b(mul, x, x) if p == 2 else _raised(b, b(abs_, x), p)
        total = b(sum_, powers, over=node.attrs["over"], keep=node.attrs["keep"])
        return (total if p == 1 else b(sqrt, total) if p == 2 else b(pow_, total, constant(b, 1 / p, x)),)


def _raised(b: Builder, x: Value, exponent: float) -> Value:
    """``x`` >= 0 to a power >= 0 that is known."""
    if exponent == 1:
        return x
    whole = exponent == int(exponent)
    return b(powi, x, exponent=int(exponent)) if whole else b(pow_, x, constant(b, exponent, x))


norm = register(Norm())


class NormFunction(Function):
    """norm(x, p=2, over=none, keep=false): the length ``sum(|x|^p)^(1/p)`` over an axis or axes, over all by default.

    ``p`` is at least 1. ``keep`` leaves the axes with size 1. The gradient at 0 is 0.

    given: x: [B, 8]
    >>> x / norm(x, over=1, keep=true)
    """

    name = "norm"

    def build(self, call: Call, x: Value, p: float = 2.0, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(norm, x, p=float(p), over=all_axes(x, over), keep=keep)


class CosineSimilarity(Function):
    """cosine_similarity(x, y, axis=-1, eps=1e-8): the cosine of the angle between vectors along an axis, in -1..1.

    ``sum(x * y) / (max(|x|, eps) * max(|y|, eps))``, as in PyTorch; other axes broadcast.

    given: x: [B, 8], y: [B, 8]
    >>> loss = mean(1 - cosine_similarity(x, y))
    """

    name = "cosine_similarity"

    def build(self, call: Call, x: Value, y: Value, axis: Axis = -1, eps: float = 1e-8) -> Value:
        at = from_zero(self.name, x.type, axis)
        if x.type.rank != y.type.rank or x.type.shape[at] != y.type.shape[at]:
            why = f"vectors along axis {at} of {x.type} and {y.type}"
            raise Mismatch(why, "both need the same rank and the same size on that axis", "E0302")
        check_eps(self.name, eps)

        def length(v: Value) -> Value:
            least = call.full(eps, v.type.dtype)
            return call.emit(maximum, call.emit(norm, v, p=2.0, over=(at,), keep=False), least)

        inner = call.emit(sum_, call.emit(mul, x, y), over=(at,), keep=False)
        return call.emit(div, inner, call.emit(mul, length(x), length(y)))


function(NormFunction())
function(CosineSimilarity())
