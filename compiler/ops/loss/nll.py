"""Ops that pick the score of a class: nll, the negative log-likelihood, and in_top_k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.loss.classes import check_classes, class_range, class_rows, moved_bytes, target_places

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


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
        place, counts, wrong = target_places(target, x.shape[axis], axis, attrs.get("ignore_index"))
        found = np.where(wrong, x.dtype.type(np.nan), -np.take_along_axis(x, place, axis).squeeze(axis))
        return (np.where(counts, found, x.dtype.type(0)),)

    def cost(self, node: Node) -> Cost:
        return Cost(prod(node.types[0].ints), moved_bytes(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return class_rows(axes, int_attr(node.attrs, "axis"), (False,))


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
        place, counts, wrong = target_places(target, classes, axis, attrs.get("ignore_index"))
        none, nan = dy.dtype.type(0), dy.dtype.type(np.nan)
        dx = np.zeros((*dy.shape[:axis], classes, *dy.shape[axis:]), dy.dtype)
        np.put_along_axis(dx, place, np.expand_dims(np.where(counts, -dy, none), axis), axis)
        return (np.where(np.expand_dims(counts & wrong, axis), nan, dx),)

    def cost(self, node: Node) -> Cost:
        return Cost(prod(node.input_types[0].ints), moved_bytes(node))

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
        return Cost(4 * prod(node.input_types[0].ints), moved_bytes(node))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return class_range(node, index)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return class_rows(axes, int_attr(node.attrs, "axis"), (False,))


nll = register(Nll())

nll_grad = register(NllGrad())

in_top_k = register(InTopK())
