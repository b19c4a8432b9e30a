"""softmax_cross_entropy, its gradient, and both as one op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.base.words import of_percentage
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.constants.constant import constant, full
from dslc.compiler.ops.elementwise.arithmetic import add, mul
from dslc.compiler.ops.elementwise.logic import ne
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.loss.classes import check_classes, class_range, class_rows, moved_bytes, target_places
from dslc.compiler.ops.loss.nll import nll
from dslc.compiler.ops.reduction.reduce import mean
from dslc.compiler.ops.reduction.softmax import log_softmax

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class SoftmaxCrossEntropy(Op):
    """softmax_cross_entropy(logits, target): ``-log(softmax(logits)[target])`` along ``axis``, one value per target.

    Attributes: ``axis`` (from 0); ``smoothing`` s: the target's probability is ``1 - s``, and s is shared evenly by all
    classes, as in PyTorch; ``ignore_index``, optional: targets of this value give 0. Outputs: the loss, and for the
    gradient the greatest logit, and the sum of the exponentials of all logits minus that one; all shaped like the
    target, f32 for 16-bit floats. Only distances from the greatest logit matter, so a common offset costs no
    digits. A target outside 0 <= t < classes gives nan; in data it is refused (R103).
    """

    name = "softmax_cross_entropy"
    needs = (frozenset({"x0", "x1", "y1", "y2"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        logits, target = types
        rest = check_classes("cross_entropy", logits, target, int_attr(attrs, "axis"))
        if not 0 <= float_attr(attrs, "smoothing") <= 1:
            help = of_percentage(float_attr(attrs, "smoothing")) or "between 0 and 1, such as 0.1"
            raise Mismatch(f"`smoothing` is {attrs['smoothing']}", help, "E0209")
        return rest, rest, rest

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if any(dy is not None for dy in dys[1:]):
            raise NoGradient("no gradient flows through the statistics of `cross_entropy`")
        assert dys[0] is not None
        logits, target = node.inputs
        return b(softmax_cross_entropy_grad, logits, target, *node.outputs[1:], dys[0], **node.attrs), None

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        (logits, target), attrs = node.inputs, node.attrs
        axis, smoothing = int_attr(attrs, "axis"), float_attr(attrs, "smoothing")
        logs = b(log_softmax, logits, axis=axis)
        classes = {name: attrs[name] for name in ("axis", "ignore_index") if name in attrs}
        loss = b(mul, b(nll, logs, target, **classes), constant(b, 1 - smoothing, logits))
        if smoothing:
            even = b(mul, b(mean, logs, over=(axis,), keep=False), constant(b, -smoothing, logits))
            ignored = attrs.get("ignore_index")
            if isinstance(ignored, int):
                counts = b(ne, target, b(full, value=ignored, dtype=target.type.dtype, shape=()))
                even = b(where, counts, even, constant(b, 0.0, logits))
            loss = b(add, loss, even)
        return [loss, None, None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        logits, target = xs
        axis, smoothing, classes = attrs["axis"], attrs["smoothing"], logits.shape[attrs["axis"]]
        place, counts, wrong = target_places(target, classes, axis, attrs.get("ignore_index"))
        inner = logits.dtype.type
        with np.errstate(all="ignore"):
            top = np.max(logits, axis=axis, keepdims=True) + inner(0)  # a zero is always 0.0, never -0.0
            apart = logits - top
            below = np.sum(np.exp(apart), axis=axis, keepdims=True)
            rest = np.log(below)
            loss = inner(1 - smoothing) * (rest - np.take_along_axis(apart, place, axis))
            if smoothing:
                loss += inner(smoothing) * (rest - np.mean(apart, axis=axis, keepdims=True))
            loss = np.where(wrong, inner(np.nan), loss.squeeze(axis))
            return np.where(counts, loss, inner(0)), top.squeeze(axis), below.squeeze(axis)

    def cost(self, node: Node) -> Cost:
        return Cost(6 * prod(node.input_types[0].ints), moved_bytes(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return class_rows(axes, int_attr(node.attrs, "axis"), (False, False, False))


class SoftmaxCrossEntropyGrad(Op):
    """softmax_cross_entropy_grad(logits, target, top, below, dy): ``exp(logits - top) * (dy / below) - wanted * dy``.

    ``wanted`` is the smoothed target; attributes as for ``softmax_cross_entropy``; 0 if the target is ignored, nan
    if it is not a class.
    """

    name = "softmax_cross_entropy_grad"
    statistics = (2, 3, 4)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        logits, target, top, below, dy = types
        assert top == below == dy == check_classes("cross_entropy", logits, target, int_attr(attrs, "axis"))
        return (logits,)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `cross_entropy` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        logits, target, top, below, dy = xs
        axis, smoothing, classes = attrs["axis"], attrs["smoothing"], logits.shape[attrs["axis"]]
        place, counts, wrong = target_places(target, classes, axis, attrs.get("ignore_index"))
        inner = logits.dtype.type
        with np.errstate(all="ignore"):
            slope = np.exp(logits - np.expand_dims(top, axis)) * np.expand_dims(dy / below, axis)
            even, own = inner(smoothing / classes), inner(smoothing / classes + (1 - smoothing))
            at_target = np.take_along_axis(slope, place, axis) - np.expand_dims(own * dy, axis)
            if smoothing:
                slope -= np.expand_dims(even * dy, axis)
            np.put_along_axis(slope, place, at_target, axis)
            slope = np.where(np.expand_dims(wrong, axis), inner(np.nan), slope)
        return (np.where(np.expand_dims(counts, axis), slope, inner(0)),)

    def cost(self, node: Node) -> Cost:
        return Cost(4 * prod(node.types[0].ints), moved_bytes(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return class_rows(axes, int_attr(node.attrs, "axis"), (True,)) if len({*axes[1:]}) == 1 else None


class SoftmaxCrossEntropyBoth(Op):
    """softmax_cross_entropy_both(logits, target, dy): the loss, and the gradient of the logits given that of the loss.

    Attributes as for ``softmax_cross_entropy``; an attribute ``dy`` replaces the input if it is the same everywhere. A
    pass makes it. The gradient may take the place of the logits, the largest tensor of a language model.
    """

    name = "softmax_cross_entropy_both"
    inplace = ((0, 1),)  # the sums over all classes come first; then each element is read and written

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        loss, *_ = softmax_cross_entropy.infer(types[:2], attrs)
        assert list(types[2:]) == ([] if "dy" in attrs else [loss]), "dy is an input or an attribute"
        return loss, types[0]

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("fusion comes after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        loss, *statistics = softmax_cross_entropy.meaning(xs[:2], attrs)
        dy = xs[2] if len(xs) > 2 else np.full_like(loss, attrs["dy"])
        return loss, *softmax_cross_entropy_grad.meaning([*xs[:2], *statistics, dy], attrs)

    def cost(self, node: Node) -> Cost:
        return Cost(10 * prod(node.input_types[0].ints), moved_bytes(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if len(axes) > 2 and axes[1] != axes[2]:
            return None
        return class_rows(axes, int_attr(node.attrs, "axis"), (False, True))


softmax_cross_entropy = register(SoftmaxCrossEntropy())
softmax_cross_entropy_grad = register(SoftmaxCrossEntropyGrad())
softmax_cross_entropy_both = register(SoftmaxCrossEntropyBoth())
