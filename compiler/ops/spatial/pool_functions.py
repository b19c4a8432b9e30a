"""The functions ``maxpool`` and ``avgpool`` of the language."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.elementwise.arithmetic import div
from dslc.compiler.ops.shape.slicing import pad as pad_ends
from dslc.compiler.ops.spatial.pool import avgpool, maxpool
from dslc.compiler.ops.spatial.windows import per_axis, spatial_axes


def _arguments(op: str, x: Value, k: Ints, stride: Ints | None, pad: Ints) -> dict[str, tuple[int, ...]]:
    axes = spatial_axes(op, x.type)
    return {
        "k": per_axis("k", k, axes, 1),
        "stride": per_axis("stride", k if stride is None else stride, axes, 1),
        "pad": per_axis("pad", pad, axes, 0),
    }


def _missing(op: str, x: Value, geometry: dict[str, tuple[int, ...]]) -> list[int]:
    """How many elements a last, partial window lacks at the end of each spatial axis, as PyTorch's ``ceil_mode``
    counts windows: one that begins in the padding is left out. Raises Mismatch for sizes that are not known."""
    found = []
    for n, k, stride, pad in zip(x.type.shape[2:], *geometry.values()):
        if not isinstance(n, int):
            raise Mismatch(f"`ceil_mode` of `{op}` along an axis of size {n}", "give the axis a fixed size", "E0303")
        count = -(-(n + 2 * pad - k) // stride) + 1
        if (count - 1) * stride >= n + pad:
            count -= 1
        found.append(max(0, (count - 1) * stride + k - (n + 2 * pad)))
    return found


def _longer(call: Call, x: Value, low: Sequence[int], high: Sequence[int], value: float) -> Value:
    """x with elements of ``value`` at the ends of its spatial axes."""
    if not any((*low, *high)):
        return x
    none = (0,) * x.type.rank
    return call.emit(pad_ends, x, low=(0, 0, *low), high=(0, 0, *high), interior=none, value=value)


class MaxPoolFunction(Function):
    """maxpool(x, k, stride=k, pad=0, ceil_mode=false): the largest element of each window of ``[B, C, *space]``.

    ``k``, ``stride`` and ``pad`` are one number for all spatial axes or one each; the count of windows along an axis is
    ``(n + 2*pad - k) // stride + 1``. With ``ceil_mode``, the division rounds up: a last window may reach over the end.
    nan is larger than any number. If several elements equal the maximum, the gradient goes to the first of them, and
    never to padding, even if all elements of a window are minus infinity.

    given: x: [B, 6, 28, 28]
    >>> y = maxpool(x, 2)
    >>> z = maxpool(x, 3, stride=2, ceil_mode=true)
    """

    name = "maxpool"

    def build(
        self,
        call: Call,
        x: Value,
        k: Ints,
        stride: Ints | None = None,
        pad: Ints = (0,),
        *,
        ceil_mode: bool = False,
    ) -> Value:
        geometry = _arguments("maxpool", x, k, stride, pad)
        if ceil_mode:
            missing = _missing("maxpool", x, geometry)
            x = _longer(call, x, [0] * len(missing), missing, -inf)
        return call.emit_all(maxpool, x, **geometry)[0]


class AvgPoolFunction(Function):
    """avgpool(x, k, stride=k, pad=0, ceil_mode=false, count_include_pad=true): the mean of each window.

    x is ``[B, C, *space]``; arguments as for ``maxpool``. Padded zeros count, unless ``count_include_pad`` is false:
    then a mean is over the elements of x alone. What a window of ``ceil_mode`` lacks never counts, as in PyTorch. The
    mean over whole images is ``mean(x, over=[2, 3])``.

    given: x: [B, 6, 28, 28]
    >>> y = avgpool(x, 2)
    >>> z = avgpool(x, 3, stride=2, pad=1, count_include_pad=false)
    """

    name = "avgpool"

    def build(
        self,
        call: Call,
        x: Value,
        k: Ints,
        stride: Ints | None = None,
        pad: Ints = (0,),
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Value:
        geometry = _arguments("avgpool", x, k, stride, pad)
        pads = geometry["pad"]
        missing = _missing("avgpool", x, geometry) if ceil_mode else [0] * len(pads)
        plain = call.emit(avgpool, _longer(call, x, [0] * len(pads), missing, 0.0), **geometry)
        if not any(missing) and (count_include_pad or not any(pads)):
            return plain
        counted = call.full(1.0, x.type.dtype, (1, 1, *x.type.shape[2:]))
        if count_include_pad:  # the padding counts, the rest of a partial window does not
            counted = _longer(call, counted, pads, pads, 1.0)
            counted = _longer(call, counted, [0] * len(pads), missing, 0.0)
            share = call.emit(avgpool, counted, **{**geometry, "pad": (0,) * len(pads)})
        else:
            share = call.emit(avgpool, _longer(call, counted, [0] * len(pads), missing, 0.0), **geometry)
        return call.emit(div, plain, share)


function(MaxPoolFunction())
function(AvgPoolFunction())
