"""Images read at computed places: affine_grid and grid_sample (Jaderberg et al. 2015).

A place mixes pixels around it. Their indices and weights are computed from it once, for all channels; the weights carry
its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from dslc.compiler.ir.function import Call, Function, Operand, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ir.sizes import Size, bounds, product
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import abs_, add, div, mul, require_kind, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.division import floordiv, mod
from dslc.compiler.ops.elementwise.logic import eq, ge, gt, logical_and, lt
from dslc.compiler.ops.elementwise.selection import maximum, minimum, where
from dslc.compiler.ops.elementwise.transcendental import floor, round_
from dslc.compiler.ops.index.weighted_rows import weighted_rows
from dslc.compiler.ops.shape.slicing import slice_
from dslc.compiler.ops.shape.views import reshape, transpose
from dslc.compiler.ops.spatial.windows import spatial_axes

#: mode -> pixels along each axis that make a result
TAPS: Final = {"nearest": 1, "bilinear": 2, "bicubic": 4}
PADDING: Final = ("zeros", "border", "reflection")
_SHARPNESS: Final = -0.75  # of the cubic filter, as in PyTorch


@dataclass(frozen=True)
class Formula:
    """Ops on tensors and numbers, which take the tensors' dtype."""

    call: Call

    def __call__(self, op: Op, *xs: Operand) -> Value:
        return self.call.emit(op, *self.call.operands(*xs))

    def where(self, condition: Value, then: Operand, other: Operand) -> Value:
        return self.call.emit(where, condition, *self.call.operands(then, other))

    def size(self, n: Size, dtype: DType) -> Value:
        """A size as a scalar."""
        return self.call.emit(full, value=n, dtype=dtype, shape=())

    def count(self, n: Size) -> Value:
        """0, 1, ... below n, as i32."""
        return self.call.emit(arange, start=0, step=1, shape=(n,))

    def shaped(self, x: Value, *shape: Size) -> Value:
        return x if x.type.shape == shape else self.call.emit(reshape, x, shape=shape)

    def part(self, x: Value, index: int) -> Value:
        """Element ``index`` of the last axis, whose size becomes 1."""
        *lead, _ = x.type.shape
        starts, stops = (*(0 for _ in lead), index), (*lead, index + 1)
        return self.call.emit(slice_, x, starts=starts, stops=stops, steps=(1,) * x.type.rank)


@dataclass(frozen=True)
class Taps:
    """The pixels along one axis that make each result, and their weights, None for 1."""

    index: Value
    weight: Value | None


def pixel_rows(call: Call, x: Value) -> tuple[Value, int]:
    """Pixels as rows: [B, C, *space] as a table [B, pixels, C]."""
    axes = x.type.rank - 2
    last = call.emit(transpose, x, perm=(0, *range(2, 2 + axes), 1))
    batch, channels, *space = x.type.shape
    return call.emit(reshape, last, shape=(batch, product(tuple(space)), channels)), axes


def mixed(f: Formula, taps: Sequence[Taps], space: Sequence[Size]) -> tuple[Value, Value | None]:
    """The index of each pixel in an image of these sizes, and its weight, from those along each axis; all broadcast."""
    index, weight = taps[0].index, taps[0].weight
    for line, size in zip(taps[1:], space[1:]):
        index = f(add, f(mul, index, f.size(size, DType.I32)), line.index)
        if line.weight is not None:
            weight = line.weight if weight is None else f(mul, weight, line.weight)
    return index, weight


class AffineGrid(Function):
    """affine_grid(theta, size, align_corners=false): for ``grid_sample``: where in the input each output pixel
    of an affine map comes from.

    ``theta`` [B, 2, 3] maps (x, y, 1) of an output pixel to x and y in the input; ``size`` is [H, W]. For volumes
    [B, 3, 4] and [D, H, W]. Both run from -1 to 1: between the borders of an image, or with ``align_corners`` between
    the centres of its first and last pixels. The result is [B, H, W, 2], with x (along W) first.

    given: theta: [B, 2, 3], x: [B, 3, 14, 14]
    >>> y = grid_sample(x, affine_grid(theta, [14, 14]))
    """

    name = "affine_grid"

    def build(self, call: Call, theta: Value, size: Shape, align_corners: bool = False) -> Value:
        f, axes = Formula(call), len(size)
        require_kind(self.name, theta.type.dtype, "float")
        if theta.type.rank != 3 or theta.type.shape[1:] != (axes, axes + 1):
            why = f"`affine_grid` of {theta.type} for {axes} spatial axes"
            raise Mismatch(why, f"theta is [B, {axes}, {axes + 1}]", "E0302")
        for n in size:
            if bounds(n)[0] < 1:
                raise Mismatch(f"`affine_grid` to a size of {n}", "at least one pixel on each axis", "E0308")
        batch = theta.type.shape[0]
        terms = []
        for column in range(axes + 1):
            factor = f.shaped(f.part(theta, column), batch, *(1,) * axes, axes)
            if column < axes:
                axis = axes - 1 - column
                line = _coordinates(f, size[axis], theta.type.dtype, align_corners)
                line = f.shaped(line, 1, *(n if a == axis else 1 for a, n in enumerate(size)), 1)
                factor = f(mul, line, factor)
            terms.append(factor)
        return reduce(lambda x, y: f(add, x, y), terms)


def _coordinates(f: Formula, n: Size, dtype: DType, align_corners: bool) -> Value:
    """The n centres of pixels, from -1 to 1; a single one is at 0."""
    pixel = f.call.emit(cast, f.count(n), dtype=dtype)
    if align_corners:
        steps = f.size(n - 1, dtype)
        return f(div, f(sub, f(mul, pixel, 2.0), steps), f(maximum, steps, 1.0))
    return f(div, f(sub, f(mul, pixel, 2.0), f.size(n - 1, dtype)), f.size(n, dtype))


class GridSample(Function):
    """grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=false): ``x`` [B, C, H, W] at the
    places ``grid`` [B, h, w, 2]: [B, C, h, w].

    A place is x (along W) and y, from -1 to 1: between the borders of the image, or with ``align_corners`` between the
    centres of its first and last pixels. For volumes x is [B, C, D, H, W], and a place also has z. ``mode``:
    "nearest", "bilinear", which mixes the neighbours on each axis, or for images "bicubic". What is outside is 0
    ("zeros"), the nearest pixel ("border"), or reflected at the borders ("reflection"). As in PyTorch.

    Gradients flow to x, added in a fixed order, and to the places, except those of "nearest". 32-bit floats place
    pixels in 16-bit models.

    given: x: [B, 3, 14, 14], grid: [B, 7, 7, 2]
    >>> y = grid_sample(x, grid, padding_mode="border")
    """

    name = "grid_sample"

    def build(
        self, call: Call, x: Value, grid: Value, mode: str = "bilinear", padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Value:  # fmt: skip
        axes, f = spatial_axes(self.name, x.type), Formula(call)
        require_kind(self.name, x.type.dtype, "float")
        for name, given, known in (("mode", mode, tuple(TAPS)), ("padding_mode", padding_mode, PADDING)):
            if given not in known:
                raise Mismatch(f'`{name}` is "{given}"', "one of " + ", ".join(f'"{m}"' for m in known), "E0209")
        if mode == "bicubic" and axes != 2:
            raise Mismatch(f'"bicubic" runs over 2 axes, {x.type} has {axes}', 'mode="bilinear"', "E0209")
        (batch, _, *space), places = x.type.shape, grid.type.shape
        fits = grid.type.rank == axes + 2 and places[0] == batch and places[-1] == axes
        if not fits or grid.type.dtype is not x.type.dtype:
            why = f"`grid_sample` of {x.type} at places {grid.type}"
            listed = "".join(f", {n}" for n in "dhw"[-axes:])
            raise Mismatch(why, f"the places are {x.type.dtype}[{batch}{listed}, {axes}]", "E0302")
        for n in space:
            if bounds(n)[0] < 1:
                raise Mismatch(f"`grid_sample` of {x.type}", "at least one pixel on each axis", "E0308")
        lines = []
        for axis, n in enumerate(space):
            place = f.shaped(f.part(grid, axes - 1 - axis), *places[:-1], *(1,) * axes)
            at = _pixel(f, place, n, align_corners)
            lines.append(_Line(f, n, mode, padding_mode, align_corners).taps(at, axis, axes))
        index, weight = mixed(f, lines, space)
        assert weight is not None
        each = (*places[:-1], TAPS[mode] ** axes)
        table, _ = pixel_rows(call, x)
        y = call.emit(weighted_rows, table, f.shaped(index, *each), f.shaped(weight, *each), lead=1)
        return call.emit(transpose, y, perm=(0, axes + 1, *range(1, axes + 1)))


def _pixel(f: Formula, place: Value, n: Size, align_corners: bool) -> Value:
    """A place of -1 to 1 in pixels: 0 is the centre of the first."""
    from_border = f(add, place, 1.0)
    if align_corners:
        return f(mul, f(div, from_border, 2.0), f.size(n - 1, place.type.dtype))
    return f(div, f(sub, f(mul, from_border, f.size(n, place.type.dtype)), 1.0), 2.0)


@dataclass(frozen=True)
class _Line:
    """One axis of ``n`` pixels."""

    f: Formula
    n: Size
    mode: str
    padding: str
    align_corners: bool

    def taps(self, at: Value, axis: int, axes: int) -> Taps:
        """The pixels at positions [B, *places, 1, ...], and their weights, along one of the last ``axes`` axes."""
        f, mode = self.f, self.mode
        if mode == "nearest":
            return self._placed(f(round_, self._inside(at)), None)
        if mode == "bilinear":
            at = self._inside(at)
        first = f(floor, at)
        past = f(sub, at, first)
        number = f.shaped(f.count(TAPS[mode]), *(TAPS[mode] if a == axis else 1 for a in range(axes)))
        if mode == "bilinear":
            weight = f.where(f(eq, number, 0), f(sub, 1.0, past), past)
        else:
            weight = self._cubic(number, past)
        pixel = f(add, first, f(sub, f.call.emit(cast, number, dtype=at.type.dtype), float(TAPS[mode] // 2 - 1)))
        return self._placed(self._inside(pixel) if mode == "bicubic" else pixel, weight)

    def _cubic(self, number: Value, past: Value) -> Value:
        """The weights of the four pixels around a position."""
        f, k = self.f, _SHARPNESS
        ahead = f(sub, 1.0, past)
        beyond = f(eq, f(mod, number, 3), 0)  # the first and the last
        u = f.where(f(lt, number, 2), past, ahead)
        u = f.where(beyond, f(add, u, 1.0), u)
        near = f(add, f(mul, f(mul, f(sub, f(mul, u, k + 2), k + 3), u), u), 1.0)
        far = f(sub, f(mul, f(add, f(mul, f(sub, f(mul, u, k), 5 * k), u), 8 * k), u), 4 * k)
        return f.where(beyond, far, near)

    def _inside(self, at: Value) -> Value:
        """Positions outside moved to the border, or reflected at it; the gradient is 0 from the border on."""
        if self.padding == "zeros":
            return at
        f, dtype = self.f, at.type.dtype
        last = f.size(self.n - 1, dtype)
        if self.padding == "reflection":
            low, span = (0.0, last) if self.align_corners else (-0.5, f.size(self.n, dtype))
            if self.align_corners:
                span = f(maximum, span, 1.0)  # a single pixel: whatever, it is taken below
            away = f(abs_, f(sub, at, low))
            rest = f(mod, away, span)
            odd = f(eq, f(mod, f(floordiv, away, span), 2.0), 1.0)
            at = f(add, f.where(odd, f(sub, span, rest), rest), low)
        at = f.where(f(gt, at, 0.0), at, 0.0)
        return f.where(f(lt, at, last), at, last)

    def _placed(self, pixel: Value, weight: Value | None) -> Taps:
        """Whole positions as indices; those outside of the image get the weight 0."""
        f = self.f
        index, n = f.call.emit(cast, pixel, dtype=DType.I32), f.size(self.n, DType.I32)
        inside = f(logical_and, f(ge, index, 0), f(lt, index, n))
        index = f(minimum, f(maximum, index, 0), f(sub, n, 1))
        if weight is None:
            return Taps(index, f.call.emit(cast, inside, dtype=pixel.type.dtype))
        return Taps(index, f.where(inside, weight, 0.0))


for _function in (AffineGrid, GridSample):
    function(_function())
