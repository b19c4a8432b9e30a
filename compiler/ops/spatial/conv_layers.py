"""The functions ``conv`` and ``conv_transpose`` of the language."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dslc.compiler.ir.function import Call, Function, Init, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds, exact_div, to_fix
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.elementwise.arithmetic import add
from dslc.compiler.ops.random.init import fan_in_uniform
from dslc.compiler.ops.shape.slicing import pad as pad_ends
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.conv import conv, conv_dgrad
from dslc.compiler.ops.spatial.windows import per_axis, spatial_axes


def _divided(what: str, size: Size, groups: int) -> Size:
    share = exact_div(size, groups) if groups >= 1 else None
    if groups < 1:
        raise Mismatch(f"`groups` is {groups}", "`groups=1` for a plain convolution", "E0209")
    if share is None:
        raise Mismatch(
            f"{size} channels {what} are not divisible by {groups} groups", f"a multiple of {groups}", "E0303"
        )
    return share


def _sized(name: str, out: Size | None, k: Ints | None) -> tuple[Size, Ints]:
    """``out`` and ``k`` of a layer that makes its weight; raises Mismatch if one is missing."""
    if out is None or k is None:
        listed = " and ".join(f"`{n}`" for n, given in (("out", out), ("k", k)) if given is None)
        raise Mismatch(f"`{name}` needs {listed}", f"`{name}(x, 16, 3)`, or a tensor: `weight=w`", "E0201")
    _at_least_one(name, out)
    return out, k


def _given(name: str, x: Value, weight: Value, out: Size | None, k: Ints | None, init: Init | None) -> Ints:
    """The kernel's sizes of a given weight; raises Mismatch for another rank, and for arguments that it replaces."""
    twice = [n for n, value in (("out", out), ("k", k), ("init", init)) if value is not None]
    if twice:
        why = f"`weight` is given, and `{twice[0]}`, too"
        raise Mismatch(why, f"leave `{twice[0]}` out: the weight's shape says it", "E0209")
    if weight.type.rank != x.type.rank:
        each = name == "conv" and weight.type.rank == x.type.rank + 1
        raise Mismatch(
            f"the weight {weight.type} of `{name}` has rank {weight.type.rank}, the input {x.type} has rank "
            f"{x.type.rank}",
            "a weight for each row is a product: `reshape(w, [B, out, 9*C]) @ unfold(x, 3)`"
            if each
            else "give both the same number of spatial axes",
        )
    for size in weight.type.shape[2:]:
        if not isinstance(size, int):
            raise Mismatch(f"the kernel of the weight {weight.type} has no fixed size", to_fix(size), "E0303")
    return TensorType(weight.type.dtype, weight.type.shape[2:]).ints


def _add_bias(call: Call, y: Value, init: Init) -> Value:
    channels = y.type.shape[1]
    bias = call.param("bias", (channels,), init)
    column = call.emit(reshape, bias, shape=(channels,) + (1,) * (y.type.rank - 2))
    return call.emit(add, y, column)


def _with_ends(call: Call, x: Value, pad: Ints, axes: int) -> tuple[Value, Ints]:
    """x with the zeros that ``pad`` adds on one side only, and how many it adds on both; raises Mismatch."""
    if len(pad) != 2 * axes:
        return x, per_axis("pad", pad, axes, 0)
    before, after = (per_axis("pad", half, axes, 0) for half in (pad[:axes], pad[axes:]))
    both = tuple(map(min, before, after))
    low, high = ((0, 0, *(p - q for p, q in zip(side, both))) for side in (before, after))
    if any(low + high):
        x = call.emit(pad_ends, x, low=low, high=high, interior=(0,) * x.type.rank, value=0.0)
    return x, both


def _at_least_one(name: str, out: Size) -> None:
    if isinstance(out, int) and out < 1:
        raise Mismatch(f"`{name}` with {out} output channels", "`out` must be at least 1", "E0209")


class ConvLayer(Function):
    """conv(x, out, k, stride=1, pad=0, dilation=1, groups=1, bias, init, weight): convolution of ``[B, C, *space]``.

    ``weight`` is ``[out, C/groups, *k]`` as in PyTorch (cross-correlation: the kernel is not flipped), ``bias`` is
    ``[out]``; both start uniform within +-1/sqrt(C/groups * k * k). ``k``, ``stride``, ``pad`` and ``dilation`` are one
    number for all spatial axes or one each. ``pad`` adds zeros on both sides; with twice as many numbers as axes, the
    first half is before and the second after: ``pad=[0, 0, 1, 1]`` is TensorFlow's "SAME" of a window of 3 with stride
    2, and ``pad=[2, 0]`` a causal one over time. A tensor given as ``weight=`` takes the place of ``out``, ``k`` and
    the parameter; then ``bias`` is false by default, else true. ``init`` and ``bias_init`` initialise weight and bias
    in another way.

    given: x: [B, 3, 32, 32], w: [8, 3, 5, 5]
    >>> y = conv(x, 8, 3, stride=2, pad=1)
    >>> z = conv(x, weight=w, pad=2)
    >>> t = conv(x, 8, 3, stride=2, pad=[0, 0, 1, 1])
    """

    name = "conv"

    def build(
        self,
        call: Call,
        x: Value,
        out: Size | None = None,
        k: Ints | None = None,
        *,
        stride: Ints = (1,),
        pad: Ints = (0,),
        dilation: Ints = (1,),
        groups: int = 1,
        bias: bool | None = None,
        init: Init | None = None,
        weight: Value | None = None,
        bias_init: Init | None = None,
    ) -> Value:
        axes = spatial_axes("conv", x.type)
        share = _divided("in", x.type.shape[1], groups)
        bias = weight is None if bias is None else bias
        if weight is None:
            out, k = _sized("conv", out, k)
            _divided("out", out, groups)
            kernel = per_axis("k", k, axes, 1)
            weight = call.param("weight", (out, share, *kernel), init or fan_in_uniform(share * prod(kernel)))
        else:
            kernel = _given("conv", x, weight, out, k, init)
        x, both = _with_ends(call, x, pad, axes)
        y = call.emit(
            conv,
            x,
            weight,
            stride=per_axis("stride", stride, axes, 1),
            pad=both,
            dilation=per_axis("dilation", dilation, axes, 1),
            groups=groups,
        )
        return _add_bias(call, y, bias_init or fan_in_uniform(share * prod(kernel))) if bias else y


class ConvTransposeLayer(Function):
    """conv_transpose(x, out, k, stride=1, pad=0, output_pad=0, dilation=1, groups=1, bias, init, weight): transposed
    convolution, which enlarges images.

    The gradient of ``conv`` for its input: each element of x adds a kernel to the result, ``stride`` apart. The size is
    ``(n - 1)*stride - 2*pad + dilation*(k - 1) + output_pad + 1``; ``output_pad`` must be less than ``stride`` or
    ``dilation``. ``weight`` is ``[C, out/groups, *k]`` as in PyTorch, ``bias`` is ``[out]``; both start uniform within
    +-1/sqrt(out/groups * k * k), as in PyTorch. A tensor given as ``weight=`` takes the place of ``out``, ``k`` and the
    parameter; then ``bias`` is false by default, else true.

    given: x: [B, 16, 8, 8], w: [16, 8, 2, 2]
    >>> y = conv_transpose(x, 8, 2, stride=2)
    >>> z = conv_transpose(x, weight=w, stride=2)
    """

    name = "conv_transpose"

    def build(
        self,
        call: Call,
        x: Value,
        out: Size | None = None,
        k: Ints | None = None,
        *,
        stride: Ints = (1,),
        pad: Ints = (0,),
        output_pad: Ints = (0,),
        dilation: Ints = (1,),
        groups: int = 1,
        bias: bool | None = None,
        init: Init | None = None,
        weight: Value | None = None,
        bias_init: Init | None = None,
    ) -> Value:
        axes = spatial_axes("conv_transpose", x.type)
        _divided("in", x.type.shape[1], groups)
        bias = weight is None if bias is None else bias
        if weight is None:
            out, k = _sized("conv_transpose", out, k)
            share, kernel = _divided("out", out, groups), per_axis("k", k, axes, 1)
        else:
            kernel = _given("conv_transpose", x, weight, out, k, init)
            share = weight.type.shape[1]
        strides = per_axis("stride", stride, axes, 1)
        pads, dilations = per_axis("pad", pad, axes, 0), per_axis("dilation", dilation, axes, 1)
        extra = per_axis("output_pad", output_pad, axes, 0)
        if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations)):
            raise Mismatch("`output_pad` must be smaller than `stride` or `dilation`", "`output_pad=0`", "E0209")
        size: tuple[Size, ...] = tuple(
            (n - 1) * s - 2 * p + d * (m - 1) + e + 1
            for n, s, p, d, m, e in zip(x.type.shape[2:], strides, pads, dilations, kernel, extra)
        )
        if any(bounds(n)[0] < 1 for n in size):
            shown = ", ".join(map(str, size))
            raise Mismatch(f"`conv_transpose` has no output: its size is [{shown}]", "a smaller `pad`", "E0308")
        fan_in = share * prod(kernel)
        if weight is None:
            weight = call.param("weight", (x.type.shape[1], share, *kernel), init or fan_in_uniform(fan_in))
        y = call.emit(
            conv_dgrad,
            self._as_far_as(call, x, [e // s for e, s in zip(extra, strides)]),
            weight,
            stride=strides,
            pad=pads,
            dilation=dilations,
            groups=groups,
            size=size,
        )
        return _add_bias(call, y, bias_init or fan_in_uniform(fan_in)) if bias else y

    def _as_far_as(self, call: Call, x: Value, more: Sequence[int]) -> Value:
        """x with so many zeros at the end of each spatial axis: a result that ``output_pad`` makes longer by a stride
        or more is that of a ``conv`` of more windows, and those add nothing."""
        if not any(more):
            return x
        none = (0,) * x.type.rank
        return call.emit(pad_ends, x, low=none, high=(0, 0, *more), interior=none, value=0.0)


function(ConvLayer())
function(ConvTransposeLayer())
