"""Ops over classes along an axis: softmax_cross_entropy, nll, in_top_k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.base.words import of_percentage
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.constants.constant import constant, full
from dslc.compiler.ops.elementwise.arithmetic import add, mul
from dslc.compiler.ops.elementwise.logic import ne
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.reduce import mean
from dslc.compiler.ops.reduction.softmax import log_softmax

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_WIDE = {DType.F16: DType.F32, DType.BF16: DType.F32}


def check_classes(op: str, x: TensorType, target: TensorType, axis: int) -> TensorType:
    """The type of one value per target, f32 for 16-bit floats; raises Mismatch.

    ``target`` holds integers 0 <= t < classes and has the shape of x without ``axis`` (from 0).
    """
    if not 0 <= axis < x.rank:
        raise Mismatch(f"`{op}` needs an axis of classes, got {x}", "logits of [..., classes]", "E0306")
    if not x.dtype.is_float:
        swapped = f"swap the arguments: {op}(logits, target)"
        computed = "the logits are what the model computes, not class numbers"
        raise Mismatch(f"`{op}` needs float logits, got {x}", swapped if target.dtype.is_float else computed, "E0204")
    if not target.dtype.is_int:
        raise Mismatch(f"`{op}` needs integer classes, the target is {target}", "declare it `i32[B]`", "E0204")
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if target.shape != rest:
        shown = ", ".join(map(str, rest))
        others = [i for i in range(x.rank) if x.shape[:i] + x.shape[i + 1 :] == target.shape]
        help = f"`axis={others[0]}` if that is the axis of the classes" if others else f"a target of [{shown}]"
        raise Mismatch(f"with {x} and classes on axis {axis}, the target is {target}, not [{shown}]", help, "E0302")
    if x.shape[axis] == 0:
        raise Mismatch(f"`{op}` over no classes: {x}", "at least one class", "E0308")
    return TensorType(_WIDE.get(x.dtype, x.dtype), rest)


def _places(target: Array, classes: int, axis: int, ignore: int | None) -> tuple[Array, Array, Array]:
    """The target as an index along ``axis`` (0 if invalid), where it counts, and where it is not a class."""
    target = target.astype(np.int64)  # as the kernels count: a u64 from 2^63 on is negative
    counts = np.ones(target.shape, bool) if ignore is None else target != ignore
    wrong = (target < 0) | (target >= classes)
    return np.expand_dims(np.where(counts & ~wrong, target, 0).astype(np.int64), axis), counts, wrong


def _class_range(node: Node, index: int) -> tuple[int, Size] | None:
    """The range of the target (input 1), a class index; with ``ignore_index`` it may have any value."""
    if index != 1 or node.attrs.get("ignore_index") is not None:
        return None
    return 0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]


def _rows(axes: Sequence[int | None], axis: int, like_x: Sequence[bool]) -> tuple[int | None, ...] | None:
    """``like_x`` says for each output whether it has the class axis."""
    main = axes[0]
    if main is None:
        return (None,) * len(like_x) if axes[1] is None else None
    without = main - (main > axis)
    if main == axis or axes[1] != without:
        return None
    return tuple(main if whole else without for whole in like_x)


def _moved(node: Node) -> int:
    return sum(t.bytes for t in (*node.input_types, *node.types))


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
        place, counts, wrong = _places(target, classes, axis, attrs.get("ignore_index"))
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
        return Cost(6 * prod(node.input_types[0].ints), _moved(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return _class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, int_attr(node.attrs, "axis"), (False, False, False))


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
        place, counts, wrong = _places(target, classes, axis, attrs.get("ignore_index"))
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
        return Cost(4 * prod(node.types[0].ints), _moved(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, int_attr(node.attrs, "axis"), (True,)) if len({*axes[1:]}) == 1 else None


class SoftmaxCrossEntropyBoth(Op):
    """softmax_cross_entropy_both(logits, target, dy): the loss, and the gradient of the logits given that of the loss.

    Attributes as for ``softmax_cross_entropy``; an attribute ``dy`` replaces the input if it is the same everywhere. A
    pass makes it.
    """

    name = "softmax_cross_entropy_both"

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
        return Cost(10 * prod(node.input_types[0].ints), _moved(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return _class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if len(axes) > 2 and axes[1] != axes[2]:
            return None
        return _rows(axes, int_attr(node.attrs, "axis"), (False, True))


class Nll(Op):
    """nll(log_probs, target): ``-log_probs[target]`` along ``axis``, one value per target.

    Attributes ``axis`` (from 0) and ``ignore_index``, optional: targets of this value give 0. A target outside
    0 <= t < classes gives nan; in data it is refused (R103).
    """

    name = "nll"
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        rest = check_classes("nll", types[0], types[1], int_attr(attrs, "axis"))
        return (TensorType(types[0].dtype, rest.shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        assert dys[0] is not None
        classes = node.inputs[0].type.shape[int_attr(node.attrs, "axis")]
        return b(nll_grad, node.inputs[1], dys[0], **node.attrs, classes=classes), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, target = xs
        axis = attrs["axis"]
        place, counts, wrong = _places(target, x.shape[axis], axis, attrs.get("ignore_index"))
        found = np.where(wrong, x.dtype.type(np.nan), -np.take_along_axis(x, place, axis).squeeze(axis))
        return (np.where(counts, found, x.dtype.type(0)),)

    def cost(self, node: Node) -> Cost:
        return Cost(prod(node.types[0].ints), _moved(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return _class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, int_attr(node.attrs, "axis"), (False,))


class NllGrad(Op):
    """nll_grad(target, dy): ``-dy`` at each target along a new axis of size ``classes``, 0 elsewhere.

    Attributes as for ``nll``, and ``classes``. A target that is not a class gives nan everywhere along the axis.
    """

    name = "nll_grad"
    needs = (frozenset({"x0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        target, dy = types
        axis = int_attr(attrs, "axis")
        assert target.shape == dy.shape
        return (TensorType(dy.dtype, (*dy.shape[:axis], int_attr(attrs, "classes"), *dy.shape[axis:])),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        assert dys[0] is not None
        return None, b(nll, dys[0], node.inputs[0], **{k: v for k, v in node.attrs.items() if k != "classes"})

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        target, dy = xs
        axis, classes = attrs["axis"], attrs["classes"]
        place, counts, wrong = _places(target, classes, axis, attrs.get("ignore_index"))
        none, nan = dy.dtype.type(0), dy.dtype.type(np.nan)
        dx = np.zeros((*dy.shape[:axis], classes, *dy.shape[axis:]), dy.dtype)
        np.put_along_axis(dx, place, np.expand_dims(np.where(counts, -dy, none), axis), axis)
        return (np.where(np.expand_dims(counts & wrong, axis), nan, dx),)

    def cost(self, node: Node) -> Cost:
        return Cost(prod(node.input_types[0].ints), _moved(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        main = axes[0]
        if main != axes[1]:
            return None
        return (main if main is None else main + (main >= int_attr(node.attrs, "axis")),)


class InTopK(Op):
    """in_top_k(logits, target): whether the target is among the ``top`` classes along ``axis``; b1, one per target.

    A class is among them if fewer than ``top`` classes have a larger logit, or an equal logit and a lower index. So
    ``top = 1`` agrees with argmax. nan counts as largest, but a target whose logit is nan, or that is not a class, is
    never right.
    """

    name = "in_top_k"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        logits, target = types
        axis, top = int_attr(attrs, "axis"), int_attr(attrs, "top")
        rest = check_classes("accuracy", logits, target, axis)
        classes = logits.shape[axis]
        if top < 1 or (isinstance(classes, int) and top > classes):
            most = min(5, classes) if isinstance(classes, int) else 5
            help = f"write a number from 1 to {classes}, such as `top={most}`"
            raise Mismatch(f"`top` is {top}, there are {classes} classes", help, "E0209")
        return (TensorType(DType.B1, rest.shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        return None, None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        logits, target = xs
        axis = attrs["axis"]
        classes = logits.shape[axis]
        known = (target >= 0) & (target < classes)
        place = np.expand_dims(np.where(known, target, 0).astype(np.int64), axis)
        own = np.take_along_axis(logits, place, axis)
        index = np.arange(classes).reshape(-1, *(1,) * (logits.ndim - 1 - axis))
        ahead = (logits > own) | np.isnan(logits) | ((logits == own) & (index < place))
        right = (np.sum(ahead, axis=axis) < attrs["top"]) & known & ~np.isnan(own.squeeze(axis))
        return (np.asarray(right),)

    def cost(self, node: Node) -> Cost:
        return Cost(4 * prod(node.input_types[0].ints), _moved(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return _class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(axes, int_attr(node.attrs, "axis"), (False,))


softmax_cross_entropy = register(SoftmaxCrossEntropy())
softmax_cross_entropy_grad = register(SoftmaxCrossEntropyGrad())
softmax_cross_entropy_both = register(SoftmaxCrossEntropyBoth())
nll = register(Nll())
nll_grad = register(NllGrad())
in_top_k = register(InTopK())
