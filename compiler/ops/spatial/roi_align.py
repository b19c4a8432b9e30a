"""roi_align: boxes of an image averaged to one size (He et al. 2017), as torchvision does it."""

from __future__ import annotations

from math import isfinite

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul, require_kind, sub
from dslc.compiler.ops.elementwise.convert import cast, stop_gradient
from dslc.compiler.ops.elementwise.logic import ge, gt, le, logical_and
from dslc.compiler.ops.elementwise.selection import maximum, minimum
from dslc.compiler.ops.elementwise.transcendental import floor
from dslc.compiler.ops.index.weighted_rows import weighted_rows
from dslc.compiler.ops.shape.views import reshape, transpose
from dslc.compiler.ops.spatial.sampling import Formula, Taps, mixed, pixel_rows
from dslc.compiler.ops.spatial.windows import per_axis


class RoiAlign(Function):
    """roi_align(x, boxes, image, size, scale=1.0, sampling_ratio=2, aligned=false): the parts of ``x`` [B, C, H, W] in
    ``boxes`` [R, 4], averaged to [R, C, *size].

    A box is x1, y1, x2, y2, times ``scale`` in pixels of x; ``image`` [R], integers, says whose image it is in: one
    outside of the batch gives nan. A box is cut into ``size`` cells, an int or [h, w], and a cell is the mean of
    ``sampling_ratio`` places on each axis, each mixed of the four pixels around it. ``aligned``: half a pixel to the
    left and up, so that the centre of the first pixel is at 0.5; otherwise a box is at least 1 wide and high.

    As ``torchvision.ops.roi_align``, but ``sampling_ratio`` is at least 1. No gradient flows to the boxes.

    given: x: [B, 8, 14, 14], boxes: [B, 4], image: i32[B]
    >>> y = roi_align(x, boxes, image, 7, scale=0.0625)
    """

    name = "roi_align"

    def build(
        self, call: Call, x: Value, boxes: Value, image: Value, size: Ints, scale: float = 1.0,
        sampling_ratio: int = 2, aligned: bool = False,
    ) -> Value:  # fmt: skip
        require_kind(self.name, x.type.dtype, "float")
        require_kind(self.name, image.type.dtype, "int")
        if x.type.rank != 4:
            raise Mismatch(f"`roi_align` of {x.type}", "x is [B, C, H, W]", "E0306")
        if boxes.type.dtype is not x.type.dtype or boxes.type.rank != 2 or boxes.type.shape[1] != 4:
            raise Mismatch(f"`roi_align` of {x.type} in {boxes.type}", f"boxes are {x.type.dtype}[R, 4]", "E0302")
        if image.type.shape != boxes.type.shape[:1]:
            raise Mismatch(f"`roi_align` in {boxes.type} of the images {image.type}", "one for each box", "E0302")
        if sampling_ratio < 1:
            raise Mismatch(f"`sampling_ratio` is {sampling_ratio}", "at least 1, such as 2", "E0209")
        if not (scale > 0 and isfinite(scale)):
            raise Mismatch(f"`scale` is {scale:g}", "the size of x divided by that of the image: 0.0625", "E0209")
        batch, channels, *space = x.type.shape
        for n in space:
            if bounds(n)[0] < 1:
                raise Mismatch(f"`roi_align` of {x.type}", "at least one pixel on each axis", "E0308")
        cells = per_axis("size", size, 2, 1)
        f, count = Formula(call), boxes.type.shape[0]
        fixed = f(sub, f(mul, call.emit(stop_gradient, boxes), scale), 0.5 if aligned else 0.0)
        lines = []
        for axis, (n, m) in enumerate(zip(space, cells)):
            first, high = (f.shaped(f.part(fixed, at - axis), count, *(1,) * 6) for at in (1, 3))
            places = _places(f, first, high, m, sampling_ratio, axis, aligned)
            lines.append(_taps(f, places, n, sampling_ratio, axis))
        index, weight = mixed(f, lines, space)
        assert weight is not None
        table, _ = pixel_rows(call, x)
        pixels = table.type.shape[1]
        if image.type.dtype is not DType.I32:
            image = call.emit(cast, image, dtype=DType.I32)
        first = f(mul, f.shaped(image, count, *(1,) * 6), f.size(pixels, DType.I32))
        each = (count, *cells, 4 * sampling_ratio**2)
        table = call.emit(reshape, table, shape=(batch * pixels, channels))
        ids = f.shaped(f(add, index, first), *each)
        y = call.emit(weighted_rows, table, ids, f.shaped(weight, *each), lead=0)
        return call.emit(transpose, y, perm=(0, 3, 1, 2))


def _along(axis: int, cell: int, sample: int, tap: int) -> tuple[int, ...]:
    """The shape of what depends on the cell, the sample and the pixel along one axis alone, with the axes [box, cell,
    cell, sample, pixel, sample, pixel]."""
    cells = (cell, 1) if axis == 0 else (1, cell)
    return (1, *cells, *((sample, tap, 1, 1) if axis == 0 else (1, 1, sample, tap)))


def _places(f: Formula, low: Value, high: Value, cells: int, ratio: int, axis: int, aligned: bool) -> Value:
    """``ratio`` places in each of the cells from low to high: evenly, in the middles of as many parts."""
    length = f(sub, high, low)
    if not aligned:
        length = f(maximum, length, 1.0)
    cell = f(div, length, float(cells))
    number = f.shaped(f(add, f.call.emit(cast, f.count(cells * ratio), dtype=low.type.dtype), 0.5),
                      *_along(axis, cells, ratio, 1))  # fmt: skip
    return f(add, low, f(mul, f(div, number, float(ratio)), cell))


def _taps(f: Formula, at: Value, n: Size, ratio: int, axis: int) -> Taps:
    """The two pixels around positions, and their weights in the mean of ``ratio`` of them. More than a pixel outside, a
    position counts 0; else the border is taken."""
    dtype = at.type.dtype
    last = f.size(n - 1, dtype)
    valid = f(logical_and, f(ge, at, -1.0), f(le, at, f.size(n, dtype)))
    at = f(minimum, f(maximum, at, 0.0), last)
    low = f(floor, at)
    past, second = f(sub, at, low), f(gt, f.shaped(f.count(2), *_along(axis, 1, 1, 2)), 0)
    weight = f(div, f.where(second, past, f(sub, 1.0, past)), float(ratio))
    index = f.call.emit(cast, low, dtype=DType.I32)
    index = f.where(second, f(minimum, f(add, index, 1), f.size(n - 1, DType.I32)), index)
    return Taps(index, f.where(valid, weight, 0.0))


function(RoiAlign())
