"""Bands of windows that meet an image by the same taps, and the products of which a convolution consists by them."""

from __future__ import annotations

import random

import pytest

from dslc.compiler.codegen.cpu.contraction.conv import Conv
from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.pack import Pad
from dslc.compiler.codegen.cpu.contraction.parts import Band, bands, choices
from dslc.compiler.codegen.cpu.contraction.steps import Steps
from dslc.compiler.ir.types import DType


def test_bands_of_a_dilated_line() -> None:
    assert bands(9, 3, -4, 1, 4, 9) == [Band(0, 4, 1, 2), Band(4, 1, 0, 3), Band(5, 4, 0, 2)]
    assert bands(5, 3, 0, 1, 1, 7) == [Band(0, 5, 0, 3)]


def test_bands_have_each_product_once_and_none_with_the_border() -> None:
    rng = random.Random(0)
    for _ in range(200):
        count, taps, size = (rng.randint(1, 9) for _ in range(3))
        start, move, step = rng.randint(-12, 12), rng.randint(1, 4), rng.choice([-5, -2, -1, 1, 2, 5])
        met = {(i, j) for i in range(count) for j in range(taps) if 0 <= start + i * move + j * step < size}
        found = bands(count, taps, start, move, step, size)
        assert sum(band.results for band in found) == count
        products = [
            (band.first + i, band.tap + j) for band in found for i in range(band.results) for j in range(band.taps)
        ]
        assert len(products) == len(set(products)) and set(products) == met


def test_bands_of_a_long_line_are_found_without_a_look_at_each_pair() -> None:
    long = 1 << 40
    assert bands(long, 3, -4, 1, 4, long) == [Band(0, 4, 1, 2), Band(4, long - 8, 0, 3), Band(long - 4, 4, 0, 2)]
    assert bands(long, 3, 4, 1, -4, long) == [Band(0, 4, 0, 2), Band(4, long - 8, 0, 3), Band(long - 4, 4, 1, 2)]


def test_what_is_not_taken_apart() -> None:
    one, empty, many = [Band(0, 9, 0, 3)], [Band(0, 4, 0, 0), Band(4, 5, 0, 3)], [Band(i, 1, i, 1) for i in range(7)]
    assert choices([one, one]) == [] and choices([empty, one]) == [] and choices([many, many]) == []
    assert len(choices([many, one])) == 7


def _of(size: int, k: int, dilation: int, channels: int = 64) -> list[Steps]:
    space = (Window(size, k, 1, dilation * (k // 2), dilation),) * 2
    conv = Conv(DType.F32, 2, 1, channels, channels, space)
    back = conv.input_gradient()
    assert back is not None
    return [conv.forward(), back, conv.weight_gradient()]


@pytest.mark.parametrize(("size", "dilation"), [(9, 6), (33, 16), (65, 36)])
def test_wide_dilations_are_taken_apart(size: int, dilation: int) -> None:
    """The products are those of pixels in the image."""
    for steps in _of(size, 3, dilation):
        assert not any(isinstance(step.kernel, Pad) for step in steps.steps)
        kernels = [step.kernel for step in steps.steps if isinstance(step.kernel, Contraction)]
        products = sum(k.depth * _results(k) for k in kernels)
        along = size + 2 * (size - dilation)  # pairs of a pixel and a tap
        assert len(kernels) == 9 and products == 2 * 64 * 64 * along**2


@pytest.mark.parametrize("size", [14, 56])
def test_narrow_borders_are_copied(size: int) -> None:
    for steps in _of(size, 3, 1):
        assert sum(isinstance(step.kernel, Pad) for step in steps.steps) == 1


def _results(kernel: Contraction) -> int:
    found = 1
    for axis in (*kernel.batch, *kernel.rows, *kernel.lanes):
        found *= axis.size
    return found
