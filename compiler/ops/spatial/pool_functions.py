"""The functions ``maxpool``, ``avgpool``, ``lp_pool`` and ``maxunpool`` of the language."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import product, to_fix
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul
from dslc.compiler.ops.elementwise.logic import ne
from dslc.compiler.ops.elementwise.powers import Power
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.index.scatter import Scatter
from dslc.compiler.ops.shape.slicing import pad as pad_ends
from dslc.compiler.ops.shape.slicing import piece
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.placed_pool import maxpool_places
from dslc.compiler.ops.spatial.pool import avgpool, maxpool
from dslc.compiler.ops.spatial.windows import check_pad, per_axis, spatial_axes, window_count


def _arguments(op: str, x: Value, k: Ints, stride: Ints | None, pad: Ints, dilation: Ints) -> dict[str, Ints]:
    axes = spatial_axes(op, x.type)
    return {
        "k": per_axis("k", k, axes, 1),
        "stride": per_axis("stride", k if stride is None else stride, axes, 1),
        "pad": per_axis("pad", pad, axes, 0),
        "dilation": per_axis("dilation", dilation, axes, 1),
    }


def _fixed(op: str, argument: str, x: Value) -> tuple[int, ...]:
    """The spatial sizes; raises Mismatch for those that are not known."""
    for n in x.type.shape[2:]:
        if not isinstance(n, int):
            raise Mismatch(f"`{argument}` of `{op}` along an axis of size {n}", to_fix(n), "E0303")
    return tuple(n for n in x.type.shape[2:] if isinstance(n, int))


def _missing(op: str, x: Value, geometry: dict[str, Ints]) -> tuple[int, ...]:
    """How many elements a last, partial window lacks at the end of each spatial axis, as PyTorch's ``ceil_mode``
    counts windows: one that begins in the padding is left out. Along an axis of unknown size it may lack up to
    ``stride - 1``; with so many more, the count is the same for each size, if no window can begin in the padding.
    Raises Mismatch if one can."""
    found = []
    for n, k, stride, pad, dilation in zip(x.type.shape[2:], *geometry.values()):
        reach = dilation * (k - 1) + 1
        if not isinstance(n, int):
            if stride + pad > reach:
                why = f"`ceil_mode` of `{op}` along an axis of size {n}, where a window could begin in the padding"
                raise Mismatch(why, f"give the axis a fixed size, or a stride of at most {reach - pad}", "E0303")
            found.append(stride - 1)
            continue
        count = -(-(n + 2 * pad - reach) // stride) + 1
        if (count - 1) * stride >= n + pad:
            count -= 1
        found.append(max(0, (count - 1) * stride + reach - (n + 2 * pad)))
    return tuple(found)


def _longer(call: Call, x: Value, low: Sequence[int], high: Sequence[int], value: float) -> Value:
    """x with elements of ``value`` at the ends of its spatial axes."""
    if not any((*low, *high)):
        return x
    none = (0,) * x.type.rank
    return call.emit(pad_ends, x, low=(0, 0, *low), high=(0, 0, *high), interior=none, value=value)


def _means(call: Call, x: Value, geometry: dict[str, Ints]) -> Value:
    """The mean of each window; with dilation, axis by axis, the sum of the slices that each place of a window sees."""
    k, stride, pad, dilation = geometry.values()
    if max(dilation) == 1:
        return call.emit(avgpool, x, k=k, stride=stride, pad=pad)
    _fixed("avgpool", "dilation", x)
    check_pad("avgpool", k, pad, dilation)
    x = _longer(call, x, pad, pad, 0.0)
    for axis, (wide, step, gap) in enumerate(zip(k, stride, dilation), 2):
        count = window_count("avgpool", x.type.shape[axis], wide, step, 0, gap, axis)
        assert isinstance(count, int)
        seen = [piece(call, x, axis, t * gap, t * gap + (count - 1) * step + 1, step) for t in range(wide)]
        x = seen[0]
        for other in seen[1:]:
            x = call.emit(add, x, other)
    return call.emit(div, x, call.full(float(prod(k)), x.type.dtype))


class MaxPoolFunction(Function):
    """maxpool(x, k, stride=k, pad=0, ceil_mode=false): the largest element of each window of ``[B, C, *space]``.

    ``k``, ``stride``, ``pad`` and ``dilation``, the distance of neighbours in a window, are one number for all spatial
    axes or one each; the count of windows along an axis is ``(n + 2*pad - dilation*(k - 1) - 1) // stride + 1``. With
    ``ceil_mode``, the division rounds up: a last window may reach over the end. nan is larger than any number. If
    several elements equal the maximum, the gradient goes to the first of them, and never to padding, even if all
    elements of a window are minus infinity.

    With ``indices=true`` there are two results: the second is the index of each maximum in its image, in row-major
    order and as i32, which ``maxunpool`` takes.

    given: x: [B, 6, 28, 28]
    >>> y = maxpool(x, 2)
    >>> z = maxpool(x, 3, stride=2, ceil_mode=true)
    >>> largest, places = maxpool(x, 3, dilation=2, indices=true)
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
        dilation: Ints = (1,),
        ceil_mode: bool = False,
        indices: bool = False,
    ) -> Value | tuple[Value, ...]:
        geometry = _arguments("maxpool", x, k, stride, pad, dilation)
        missing = _missing("maxpool", x, geometry) if ceil_mode else (0,) * len(geometry["k"])
        if indices or max(geometry["dilation"]) > 1:
            found = call.emit_all(maxpool_places, x, **geometry, more=missing)
            return found if indices else found[0]
        del geometry["dilation"]
        return call.emit_all(maxpool, _longer(call, x, [0] * len(missing), missing, -inf), **geometry)[0]


class AvgPoolFunction(Function):
    """avgpool(x, k, stride=k, pad=0, ceil_mode=false, count_include_pad=true): the mean of each window.

    x is ``[B, C, *space]``; arguments as for ``maxpool``. Padded zeros count, unless ``count_include_pad`` is false:
    then a mean is over the elements of x alone. What a window of ``ceil_mode`` lacks never counts, as in PyTorch. With
    ``divisor``, each result is the sum of a window divided by this number. The mean over whole images is
    ``mean(x, over=[2, 3])``.

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
        dilation: Ints = (1,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Value:
        geometry = _arguments("avgpool", x, k, stride, pad, dilation)
        if divisor == 0:
            raise Mismatch("`divisor` is 0", "any other integer", "E0209")
        pads = geometry["pad"]
        none = (0,) * len(pads)
        missing = _missing("avgpool", x, geometry) if ceil_mode else none
        plain = _means(call, _longer(call, x, none, missing, 0.0), geometry)
        if divisor is not None:
            return call.emit(mul, plain, call.full(prod(geometry["k"]) / divisor, x.type.dtype))
        if not any(missing) and (count_include_pad or not any(pads)):
            return plain
        counted = call.full(1.0, x.type.dtype, (1, 1, *x.type.shape[2:]))
        if count_include_pad:  # the padding counts, the rest of a partial window does not
            counted = _longer(call, counted, pads, pads, 1.0)
            counted = _longer(call, counted, none, missing, 0.0)
            share = _means(call, counted, {**geometry, "pad": none})
        else:
            share = _means(call, _longer(call, counted, none, missing, 0.0), geometry)
        return call.emit(div, plain, share)


class LpPool(Function):
    """lp_pool(x, p, k, stride=k): the length ``sum(x^p)^(1/p)`` of each window of ``[B, C, *space]``.

    Arguments as for ``avgpool``. As in PyTorch, x is not made positive, so take its ``abs`` if it may be negative and p
    is odd or no integer. Where the sum is 0, the gradient is 0.

    given: x: [B, 6, 28, 28]
    >>> y = lp_pool(x, 2, 2)
    """

    name = "lp_pool"

    def build(self, call: Call, x: Value, p: float, k: Ints, stride: Ints | None = None) -> Value:
        if not 1 <= p < inf:
            raise Mismatch(f"`lp_pool` with p = {p:g}", "p is at least 1; for the greatest use `maxpool`", "E0209")
        total = AvgPoolFunction().build(call, Power().build(call, x, p), k, stride, divisor=1)
        zero, one = call.operands(total, 0.0)[1], call.operands(total, 1.0)[1]
        some = call.emit(ne, total, zero)
        root = Power().build(call, call.emit(where, some, total, one), 1 / p)
        return call.emit(where, some, root, zero)


class MaxUnpool(Function):
    """maxunpool(x, places, k, stride=k, pad=0, size=none): each element of x at its place, 0 elsewhere.

    ``x`` and ``places`` are ``[B, C, *space]``, as ``maxpool(..., indices=true)`` gives them. Without ``size``, the
    spatial sizes are the least that the pool could have had: ``(n - 1)*stride - 2*pad + k``. Of equal places the last
    one wins in every run; the gradient goes to it alone.

    given: x: [B, 6, 28, 28]
    >>> largest, places = maxpool(x, 2, indices=true)
    >>> y = maxunpool(largest, places, 2)
    """

    name = "maxunpool"

    def build(
        self,
        call: Call,
        x: Value,
        places: Value,
        k: Ints,
        stride: Ints | None = None,
        pad: Ints = (0,),
        *,
        size: Ints | None = None,
    ) -> Value:
        wide, step, edge, _ = _arguments(self.name, x, k, stride, pad, (1,)).values()
        if places.type.shape != x.type.shape:
            raise Mismatch(f"`maxunpool` of {x.type} at places {places.type}", "give each element a place", "E0302")
        if size is None:
            space = tuple((n - 1) * s - 2 * p + m for n, m, s, p in zip(x.type.shape[2:], wide, step, edge))
        else:
            space = per_axis("size", size, len(wide), 1)
        lead = x.type.shape[:2]
        lines = (*lead, product(x.type.shape[2:]))
        flat, at = (call.emit(reshape, v, shape=lines) for v in (x, places))
        empty = call.full(0.0, x.type.dtype, (*lead, product(space)))
        return call.emit(reshape, Scatter().build(call, empty, at, flat, axis=2), shape=(*lead, *space))


for _function in (MaxPoolFunction, AvgPoolFunction, LpPool, MaxUnpool):
    function(_function())
