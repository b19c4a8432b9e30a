"""The function interpolate: resizes images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, Final

from dslc.compiler.ir.function import Call, Floats, Function, Shape, function
from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, floor_div
from dslc.compiler.ops.elementwise.arithmetic import div, mul
from dslc.compiler.ops.spatial.adaptive_pool import adaptive_avgpool
from dslc.compiler.ops.spatial.interpolate import interpolate
from dslc.compiler.ops.spatial.windows import spatial_axes

#: mode of the language -> (mode of the op, number of spatial axes; None: any)
MODES: Final[dict[str, tuple[str, int | None]]] = {
    "nearest": ("nearest", None),
    "nearest-exact": ("nearest-exact", None),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
    "bicubic": ("cubic", 2),
    "area": ("area", None),
}
#: The greatest denominator of a scale, which is a fraction: so positions are exact in 64 bits, and a decimal number of
#: six digits is the fraction that it looks like.
_DENOMINATOR: Final = 1 << 20
_LARGEST: Final = 1 << 20


class InterpolateFunction(Function):
    """interpolate(x, size=none, scale=none, mode="nearest", align_corners=false, antialias=false): ``[B, C, *space]``
    with other spatial sizes.

    Give ``size``, the new sizes, or ``scale``, the factors: one for all axes or one each. A size times a factor is
    rounded down. A factor that is no integer is taken as the nearest fraction with a denominator up to 2^20, and
    positions follow from it, not from the rounded sizes, as in PyTorch. An axis whose size stays is not changed.

    ``mode``: "nearest", "nearest-exact", "area" (means of the pixels that a new one overlaps: ``adaptive_avgpool``), or
    for one, two and three spatial axes "linear", "bilinear" and "trilinear"; "bicubic" for two. The last four take
    ``align_corners``, where the centres of the corner pixels stay where they are, and ``antialias``, which smooths when
    it shrinks, as Pillow does. All is as in PyTorch, but positions are exact.

    given: x: [B, 3, 14, 14]
    >>> y = interpolate(x, scale=2, mode="bilinear")
    """

    name = "interpolate"

    def build(
        self, call: Call, x: Value, size: Shape | None = None, scale: Floats | None = None, mode: str = "nearest",
        align_corners: bool = False, antialias: bool = False,
    ) -> Value:  # fmt: skip
        axes = spatial_axes("interpolate", x.type)
        if (size is None) == (scale is None):
            raise Mismatch("`interpolate` needs `size` or `scale`", "`scale=2`, or `size=[28, 28]`", "E0201")
        inner = _mode(mode, axes, align_corners, antialias, x)
        ratios = _ratios(scale, axes)
        new = _each("size", size, axes) if size is not None else _scaled(x.type.shape[2:], ratios)
        if inner == "area":
            if not all(isinstance(n, int) for n in new):
                raise Mismatch(f'"area" to a size of {list(map(str, new))}', "give `size` as ints", "E0303")
            return call.emit(adaptive_avgpool, x, size=new)
        attrs: dict[str, Attr] = {"mode": inner}
        if align_corners:
            attrs["corners"] = True
        elif any(r.numerator != 1 for r in ratios):
            attrs["ratio"] = tuple(n for r in ratios for n in (r.numerator, r.denominator))
        if antialias:
            return _smoothed(call, x, new, attrs | {"widened": True})
        return _by_axis(call, x, new, attrs) if inner == "cubic" else call.emit(interpolate, x, size=new, **attrs)


def _mode(mode: str, axes: int, align_corners: bool, antialias: bool, x: Value) -> str:
    """The op's mode; raises Mismatch."""
    if mode not in MODES:
        raise Mismatch(f'`mode` is "{mode}"', "one of " + ", ".join(f'"{m}"' for m in MODES), "E0209")
    inner, wanted = MODES[mode]
    if wanted not in (None, axes):
        fitting = next((m for m, (_, n) in MODES.items() if n == axes), "nearest")
        raise Mismatch(f'"{mode}" runs over {wanted} axes, {x.type} has {axes}', f'mode="{fitting}"', "E0209")
    for name, given in (("align_corners", align_corners), ("antialias", antialias)):
        if given and wanted is None:
            raise Mismatch(f'`{name}` has no meaning for "{mode}"', f"leave `{name}` out", "E0209")
    return inner


def _ratios(scale: Floats | None, axes: int) -> list[Fraction]:
    """The width of a new pixel in old ones on each axis, for a given scale; raises Mismatch."""
    found = []
    for factor in () if scale is None else _each("scale", scale, axes):
        exact = Fraction(factor).limit_denominator(_DENOMINATOR) if isfinite(factor) else Fraction(0)
        if not 0 < exact <= _LARGEST:
            raise Mismatch(f"`scale` is {factor:g}", "`scale` must be more than 0, and at most 2^20", "E0209")
        found.append(1 / exact)
    return found


def _scaled(sizes: Sequence[Size], ratios: Sequence[Fraction]) -> tuple[Size, ...]:
    return tuple(floor_div(n * r.denominator, r.numerator) for n, r in zip(sizes, ratios))


def _each(name: str, given: tuple[Any, ...], axes: int) -> tuple[Any, ...]:
    """One for each spatial axis, from one for all or one each; raises Mismatch."""
    if len(given) not in (1, axes):
        raise Mismatch(f"`{name}` has {len(given)} numbers for {axes} spatial axes", f"give one, or {axes}", "E0209")
    return given if len(given) == axes else given * axes


def _along(call: Call, x: Value, axis: int, new: Size, attrs: Mapping[str, Attr]) -> Value:
    """One spatial axis of x resampled to a new size."""
    old, ratio, one = x.type.shape[2:], attrs.get("ratio"), dict(attrs)
    if old[axis] == new:
        return x
    if isinstance(ratio, tuple):
        one["ratio"] = tuple(n if at // 2 == axis else 1 for at, n in enumerate(ratio))
    return call.emit(interpolate, x, size=(*old[:axis], new, *old[axis + 1 :]), **one)


def _by_axis(call: Call, x: Value, size: tuple[Size, ...], attrs: Mapping[str, Attr]) -> Value:
    """One axis after the other: filters of many pixels then read a line of them, not a square."""
    for axis, new in enumerate(size):
        x = _along(call, x, axis, new, attrs)
    return x


def _smoothed(call: Call, x: Value, size: tuple[Size, ...], attrs: Mapping[str, Attr]) -> Value:
    """A widened filter divided by the sum of its weights, which is what it makes of ones, on each axis."""
    y, sums = _by_axis(call, x, size, attrs), None
    for axis, (old, new) in enumerate(zip(x.type.shape[2:], size)):
        if old == new:
            continue
        ones = call.full(1.0, x.type.dtype, (1, 1, *(old if a == axis else 1 for a in range(len(size)))))
        found = _along(call, ones, axis, new, attrs)
        sums = found if sums is None else call.emit(mul, sums, found)
    return y if sums is None else call.emit(div, y, sums)


function(InterpolateFunction())
