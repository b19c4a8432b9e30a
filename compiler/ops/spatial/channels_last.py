"""Ops on images with channels last in memory: ``[batch, *space, channels]``, weights ``[out, *k, in]``.

The language has no functions for them; the layout pass inserts them if the target is faster with them. Each is an op
with axis 1 of every tensor of rank 3 or more moved to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, KernelKind, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.normalization.batchnorm import batchnorm, batchnorm_grad
from dslc.compiler.ops.normalization.groupnorm import groupnorm, groupnorm_grad
from dslc.compiler.ops.spatial.adaptive_pool import adaptive_avgpool, adaptive_avgpool_grad, adaptive_maxpool
from dslc.compiler.ops.spatial.conv import conv, conv_dgrad, conv_wgrad
from dslc.compiler.ops.spatial.interpolate import interpolate, interpolate_grad
from dslc.compiler.ops.spatial.pool import avgpool, avgpool_grad, maxpool, maxpool_grad

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def to_last(rank: int) -> tuple[int, ...]:
    """For each axis of a channels-last tensor its index in the channels-first tensor."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def to_first(rank: int) -> tuple[int, ...]:
    """The inverse permutation."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 else tuple(range(rank))


@lru_cache(4096)  # few types for many layers
def first_type(t: TensorType) -> TensorType:
    """The channels-first type of a channels-last tensor."""
    return TensorType(t.dtype, tuple(t.shape[a] for a in to_first(t.rank)))


@lru_cache(4096)
def last_type(t: TensorType) -> TensorType:
    """The channels-last type of a channels-first tensor."""
    return TensorType(t.dtype, tuple(t.shape[a] for a in to_last(t.rank)))


class ChannelsLast(Op):
    """``inner`` on channels-last tensors; inserted after differentiation, so it has no gradient."""

    inner: ClassVar[Op]

    @property
    def kernel_kind(self) -> KernelKind:  # type: ignore[override]
        return self.inner.kernel_kind

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return tuple(last_type(t) for t in self.inner.infer([first_type(t) for t in types], attrs))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("layouts are chosen after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        first = [np.ascontiguousarray(x.transpose(to_first(x.ndim))) for x in xs]
        return [np.ascontiguousarray(y.transpose(to_last(y.ndim))) for y in self.inner.meaning(first, attrs)]

    def first(self, node: Node) -> Node:
        """The inner op on channels-first tensors of the same sizes, as a node without producers."""
        inputs = tuple(Value(v.producer, v.index, first_type(v.type)) for v in node.inputs)
        types = tuple(first_type(t) for t in node.types)
        return Node(self.inner, inputs, types, node.attrs, name=node.name, span=node.span, phase=node.phase)

    def cost(self, node: Node) -> Cost:
        return self.inner.cost(self.first(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        moved = [None if a is None else to_last(t.rank)[a] for a, t in zip(axes, node.input_types)]
        found = self.inner.rows(self.first(node), moved)
        if found is None:
            return None
        return tuple(None if a is None else to_first(t.rank)[a] for a, t in zip(found, node.types))


class ConvLast(ChannelsLast):
    """conv_last(x, w): ``conv`` of x ``[B, *space, C]`` with w ``[O, *k, C/groups]`` -> ``[B, *count, O]``."""

    name, inner, needs = "conv_last", conv, conv.needs


class ConvDgradLast(ChannelsLast):
    """conv_dgrad_last(dy, w): ``conv_dgrad`` of dy ``[B, *count, O]``, w ``[O, *k, C/groups]`` -> ``[B, *size, C]``."""

    name, inner, needs = "conv_dgrad_last", conv_dgrad, conv_dgrad.needs


class ConvWgradLast(ChannelsLast):
    """conv_wgrad_last(x, dy): ``conv_wgrad`` of x ``[B, *space, C]``, dy ``[B, *count, O]`` -> ``[O, *size, C]``."""

    name, inner, needs = "conv_wgrad_last", conv_wgrad, conv_wgrad.needs


class MaxPoolLast(ChannelsLast):
    """maxpool_last(x): ``maxpool`` of x ``[B, *space, C]`` -> the maximum and its index, ``[B, *count, C]``."""

    name, inner, needs = "maxpool_last", maxpool, maxpool.needs


class MaxPoolGradLast(ChannelsLast):
    """maxpool_grad_last(dy, place): ``maxpool_grad`` of tensors ``[B, *count, C]`` -> ``[B, *size, C]``."""

    name, inner = "maxpool_grad_last", maxpool_grad


class AvgPoolLast(ChannelsLast):
    """avgpool_last(x): ``avgpool`` of x ``[B, *space, C]`` -> ``[B, *count, C]``."""

    name, inner, mirror = "avgpool_last", avgpool, avgpool.mirror


class AvgPoolGradLast(ChannelsLast):
    """avgpool_grad_last(dy): ``avgpool_grad`` of dy ``[B, *count, C]`` -> ``[B, *size, C]``."""

    name, inner = "avgpool_grad_last", avgpool_grad


class BatchNormLast(ChannelsLast):
    """batchnorm_last(x, weight, bias, running_mean, running_var): ``batchnorm`` of x ``[B, *space, C]``."""

    name, inner, needs, inplace = "batchnorm_last", batchnorm, batchnorm.needs, batchnorm.inplace
    mirror = batchnorm.mirror


class BatchNormGradLast(ChannelsLast):
    """batchnorm_grad_last(x, weight, mean, invstd, dy): ``batchnorm_grad`` of x and dy ``[B, *space, C]``."""

    name, inner = "batchnorm_grad_last", batchnorm_grad


class GroupNormLast(ChannelsLast):
    """groupnorm_last(x, weight, bias): ``groupnorm`` of x ``[B, *space, C]`` -> y like x; mean and 1/std."""

    name, inner, needs, mirror = "groupnorm_last", groupnorm, groupnorm.needs, groupnorm.mirror


class GroupNormGradLast(ChannelsLast):
    """groupnorm_grad_last(x, weight, mean, invstd, dy): ``groupnorm_grad`` of x and dy ``[B, *space, C]``."""

    name, inner = "groupnorm_grad_last", groupnorm_grad


class AdaptiveAvgPoolLast(ChannelsLast):
    """adaptive_avgpool_last(x): ``adaptive_avgpool`` of x ``[B, *space, C]`` -> ``[B, *count, C]``."""

    name, inner = "adaptive_avgpool_last", adaptive_avgpool


class AdaptiveAvgPoolGradLast(ChannelsLast):
    """adaptive_avgpool_grad_last(dy): ``adaptive_avgpool_grad`` of dy ``[B, *count, C]`` -> ``[B, *size, C]``."""

    name, inner = "adaptive_avgpool_grad_last", adaptive_avgpool_grad


class AdaptiveMaxPoolLast(ChannelsLast):
    """adaptive_maxpool_last(x): ``adaptive_maxpool`` of x ``[B, *space, C]`` -> the maximum and its index in the image,
    ``[B, *count, C]``."""

    name, inner, needs = "adaptive_maxpool_last", adaptive_maxpool, adaptive_maxpool.needs


class InterpolateLast(ChannelsLast):
    """interpolate_last(x): ``interpolate`` of x ``[B, *space, C]`` -> ``[B, *size, C]``."""

    name, inner = "interpolate_last", interpolate


class InterpolateGradLast(ChannelsLast):
    """interpolate_grad_last(dy): ``interpolate_grad`` of dy ``[B, *size, C]`` -> ``[B, *space, C]``."""

    name, inner = "interpolate_grad_last", interpolate_grad


#: Channels first -> channels last, of the ops around convolutions.
LAST: Final[dict[Op, Op]] = {
    made.inner: register(made)
    for made in (
        ConvLast(), ConvDgradLast(), ConvWgradLast(), MaxPoolLast(), MaxPoolGradLast(), AvgPoolLast(),
        AvgPoolGradLast(), BatchNormLast(), BatchNormGradLast(),
    )
}  # fmt: skip
#: The same of ops that convolutions do not turn.
RESAMPLED_LAST: Final[dict[Op, Op]] = {
    made.inner: register(made)
    for made in (
        AdaptiveAvgPoolLast(), AdaptiveAvgPoolGradLast(), AdaptiveMaxPoolLast(), InterpolateLast(),
        InterpolateGradLast(),
    )
}  # fmt: skip
#: The same of normalisations whose kernels read few channels at once: only where ``decompose`` follows.
GROUPED_LAST: Final[dict[Op, Op]] = {made.inner: register(made) for made in (GroupNormLast(), GroupNormGradLast())}
