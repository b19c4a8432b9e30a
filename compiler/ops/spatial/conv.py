"""Convolution over any number of spatial axes: three ops, each a gradient of the others.

The reference implementation is one matrix product over unrolled windows (im2col); ``conv_dgrad`` adds the windows back
(col2im). Weights have PyTorch's layout: ``[out, in/groups, *k]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import exact_div
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple, shape_attr
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.spatial.windows import inside, padded, per_channel, spatial, spatial_axes, taps, window_count

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def float_dtype(op: str, types: Sequence[TensorType]) -> DType:
    """The common float dtype of ``types``; raises Mismatch E0204."""
    for t in types:
        if t.dtype is not types[0].dtype or not t.dtype.is_float:
            listed = ", ".join(str(t) for t in types)
            raise Mismatch(f"`{op}` takes float tensors of one dtype, got {listed}", "convert with `cast`", "E0204")
    return types[0].dtype


def _unrolled(x: Array, k: Sequence[int], count: Sequence[int], attrs: Mapping[str, Any]) -> Array:
    """The windows of x [B, C, *space] as a matrix per group: [groups, C/groups * prod(k), B * prod(count)]."""
    batch, channels = x.shape[:2]
    stride, dilation, groups = int_tuple(attrs, "stride"), int_tuple(attrs, "dilation"), attrs["groups"]
    wide = padded(x, int_tuple(attrs, "pad"), 0).swapaxes(0, 1)
    columns = np.empty((channels, *k, batch, *count), x.dtype)
    for tap, where in taps(k, stride, dilation, count):
        columns[per_channel(tap)] = wide[spatial(where)]
    return columns.reshape(groups, channels // groups * prod(k), batch * prod(count))


def _matrix(y: Array, groups: int) -> Array:
    """y [B, O, *space] as [groups, O/groups, B * prod(space)]."""
    return np.ascontiguousarray(y.swapaxes(0, 1)).reshape(groups, y.shape[1] // groups, y.size // max(1, y.shape[1]))


def _geometry(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("stride", "pad", "dilation", "groups")}


def _per_row(axis: int | None) -> tuple[int | None, ...] | None:
    return (axis,) if axis in (0, None) else None


class Convolution(Op):
    """A convolution or one of its gradients: of image ``[B, C, *space]``, weight ``[O, C/groups, *k]`` and result
    ``[B, O, *count]``, or the gradients of these, two are the inputs and the third is the output."""

    needs = (frozenset({"x0", "x1"}),)
    #: Where image, weight and result are among the inputs, followed by the output.
    operands: ClassVar[tuple[int, int, int]]

    def tensors(self, node: Node) -> tuple[TensorType, TensorType, TensorType]:
        """The types of image, weight and result."""
        types = (*node.input_types, *node.types)
        image, weight, result = self.operands
        return types[image], types[weight], types[result]

    def cost(self, node: Node) -> Cost:
        """Two operations per multiply-add: each element of the result uses one kernel of the weight."""
        image, weight, result = self.tensors(node)
        return Cost(2 * prod(result.ints) * prod(weight.ints[1:]), image.bytes + weight.bytes + result.bytes)


class Conv(Convolution):
    """conv(x, w): cross-correlation of x ``[B, C, *space]`` with w ``[O, C/groups, *k]`` -> ``[B, O, *count]``.

    Attributes, one number for each spatial axis: ``stride``, ``pad`` (zeros on both sides), ``dilation``; and
    ``groups``. The count along an axis is ``(n + 2*pad - dilation*(k - 1) - 1) // stride + 1``, as in PyTorch.
    """

    name = "conv"
    kernel_kind = "product"
    operands = (0, 1, 2)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, w = types
        dtype = float_dtype("conv", types)
        axes, groups = spatial_axes("conv", x), int_attr(attrs, "groups")
        if w.rank != x.rank:
            raise Mismatch(f"the weight {w} of `conv` has rank {w.rank}, the input {x} has rank {x.rank}")
        if groups < 1:
            raise Mismatch(f"`groups` is {groups}", "`groups=1` for a plain convolution", "E0209")
        if x.shape[1] == 0 or w.shape[0] == 0:
            raise Mismatch(
                "`conv` needs at least one input and one output channel", "give it at least one channel", "E0308"
            )
        share = exact_div(x.shape[1], groups)
        if share is None or exact_div(w.shape[0], groups) is None:
            raise Mismatch(
                f"{x.shape[1]} channels in and {w.shape[0]} out are not divisible by {groups} groups",
                "make both multiples of `groups`",
                "E0303",
            )
        if share != w.shape[1]:
            raise Mismatch(f"the input has {share} channels per group, the weight {w.shape[1]}", None, "E0302")
        k = TensorType(dtype, w.shape[2:]).ints
        stride, pad, dilation = (int_tuple(attrs, n) for n in ("stride", "pad", "dilation"))
        space = tuple(
            window_count("conv", x.shape[2 + i], k[i], stride[i], pad[i], dilation[i], 2 + i) for i in range(axes)
        )
        return (TensorType(dtype, (x.shape[0], w.shape[0], *space)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        x, w = node.inputs
        dy = dys[0]
        assert dy is not None
        geometry = _geometry(node)
        return (
            b(conv_dgrad, dy, w, **geometry, size=x.type.shape[2:]),
            b(conv_wgrad, x, dy, **geometry, size=w.type.shape[2:]),
        )

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, w = xs
        k, out, groups = w.shape[2:], w.shape[0], attrs["groups"]
        count = tuple(
            (n + 2 * p - d * (m - 1) - 1) // s + 1
            for n, m, s, p, d in zip(x.shape[2:], k, *(int_tuple(attrs, n) for n in ("stride", "pad", "dilation")))
        )
        kernels = w.reshape(groups, out // groups, w[0].size)
        y = np.matmul(kernels, _unrolled(x, k, count, attrs)).reshape(out, x.shape[0], *count)
        return (np.ascontiguousarray(y.swapaxes(0, 1)),)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _per_row(axes[0]) if axes[1] is None else None


class ConvDgrad(Convolution):
    """conv_dgrad(dy, w): the gradient of ``conv`` for its input; also implements ``conv_transpose``.

    dy ``[B, O, *count]``, w ``[O, C/groups, *k]`` -> ``[B, C, *size]``; attributes as for ``conv``, and ``size``, the
    spatial size of the result.
    """

    name = "conv_dgrad"
    kernel_kind = "gradient"
    operands = (2, 1, 0)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        dy, w = types
        channels = w.shape[1] * int_attr(attrs, "groups")
        dx = TensorType(float_dtype("conv_transpose", types), (dy.shape[0], channels, *shape_attr(attrs, "size")))
        [back] = conv.infer([dx, w], attrs)
        if back != dy:
            raise Mismatch(f"the weight takes {back}, the input is {dy}", None, "E0302")
        return (dx,)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        dy, w = node.inputs
        g = dys[0]
        assert g is not None
        geometry = _geometry(node)
        return b(conv, g, w, **geometry), b(conv_wgrad, g, dy, **geometry, size=w.type.shape[2:])

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        dy, w = xs
        groups, pad, size = attrs["groups"], int_tuple(attrs, "pad"), int_tuple(attrs, "size")
        batch, out, count, k = dy.shape[0], w.shape[0], dy.shape[2:], w.shape[2:]
        channels = w.shape[1] * groups
        kernels = w.reshape(groups, out // groups, w[0].size).swapaxes(1, 2)
        columns = np.matmul(kernels, _matrix(dy, groups)).reshape(channels, *k, batch, *count)
        dx = np.zeros((channels, batch, *(n + 2 * p for n, p in zip(size, pad))), dy.dtype)
        for tap, where in taps(k, int_tuple(attrs, "stride"), int_tuple(attrs, "dilation"), count):
            dx[spatial(where)] += columns[per_channel(tap)]
        return (np.ascontiguousarray(dx[spatial(inside(size, pad))].swapaxes(0, 1)),)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _per_row(axes[0]) if axes[1] is None else None


class ConvWgrad(Convolution):
    """conv_wgrad(x, dy): the gradient of ``conv`` for its weight.

    x ``[B, C, *space]``, dy ``[B, O, *count]`` -> ``[O, C/groups, *size]``; attributes as for ``conv``, and ``size``,
    the kernel's.
    """

    name = "conv_wgrad"
    kernel_kind = "weight gradient"
    operands = (0, 2, 1)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, dy = types
        share = exact_div(x.shape[1], int_attr(attrs, "groups"))
        assert share is not None, "conv has checked that the groups divide"
        dw = TensorType(float_dtype("conv_wgrad", types), (dy.shape[1], share, *int_tuple(attrs, "size")))
        [forth] = conv.infer([x, dw], attrs)
        if forth != dy:
            raise Mismatch(f"the convolution gives {forth}, its gradient is {dy}", None, "E0302")
        return (dw,)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        x, dy = node.inputs
        g = dys[0]
        assert g is not None
        geometry = _geometry(node)
        return b(conv_dgrad, dy, g, **geometry, size=x.type.shape[2:]), b(conv, x, g, **geometry)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, dy = xs
        k = int_tuple(attrs, "size")
        columns = _unrolled(x, k, dy.shape[2:], attrs)
        dw = np.matmul(_matrix(dy, attrs["groups"]), columns.swapaxes(1, 2))
        return (dw.reshape(dy.shape[1], x.shape[1] // attrs["groups"], *k),)


conv = register(Conv())
conv_dgrad = register(ConvDgrad())
conv_wgrad = register(ConvWgrad())
