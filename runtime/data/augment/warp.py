"""Geometry: the pixels of an image at other places.

A place in the source is an integer in units of 2^-24 pixels, so the arithmetic is that of integers. Pixels outside of
the source are 0. ``nearest`` takes the pixel whose centre is nearest, and so keeps values: for masks, and for all
integers except u8. Otherwise the four pixels around a place are weighted linearly; the place is first rounded to 1/256
of a pixel. A u8 has weights in 1/256 that sum to 1, and one rounding; it differs from the exact value by less than 2.
A float is the sum of four rounded products in the image's dtype, with the exact weights.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

ONE: Final = 1 << 24  # a pixel
_FINE: Final = 256  # steps of a place between two pixels
_EVEN: Final = np.uint32(0x00FF00FF)
_HALF: Final = np.uint32(0x00800080)

#: (a, b, c, d, e, f): the output pixel (x, y) shows the source at (a x + b y + c, d x + e y + f); centres are integers.
Matrix: TypeAlias = tuple[float, float, float, float, float, float]
Places: TypeAlias = NDArray[np.int64]


def transformed(image: NDArray[Any], matrix: Matrix, *, nearest: bool) -> NDArray[Any]:
    """An image [C, H, W] after an affine map."""
    _, height, width = image.shape
    a, b, c, d, e, f = (round(value * ONE) for value in matrix)
    x, y = np.arange(width, dtype=np.int64), np.arange(height, dtype=np.int64)[:, None]
    return sampled(image, d * x + (e * y + f), a * x + (b * y + c), nearest=nearest)


def resized(image: NDArray[Any], window: tuple[int, int, int, int], *, nearest: bool) -> NDArray[Any]:
    """The window (top, left, height, width) of an image [C, H, W], in the image's size. Places outside of the window
    show its edge."""
    _, height, width = image.shape
    top, left, tall, wide = window
    y, x = _along(top, tall, height), _along(left, wide, width)
    return sampled(image, y[:, None], x, nearest=nearest)


def _along(start: int, length: int, count: int) -> Places:
    """The places of ``count`` pixels on an axis that show ``length`` pixels from ``start``."""
    middle = (2 * np.arange(count, dtype=np.int64) + 1) * (length * ONE) // (2 * count) - ONE // 2
    return start * ONE + np.clip(middle, 0, (length - 1) * ONE)


def sampled(image: NDArray[Any], y: Places, x: Places, *, nearest: bool) -> NDArray[Any]:
    """The image [C, H, W] at the places (y, x), which broadcast to the result's height and width."""
    _, height, width = image.shape
    if nearest or image.dtype.kind not in "uf" or (image.dtype.kind == "u" and image.dtype != np.uint8):
        row, column = _bordered((y + ONE // 2) >> 24, height), _bordered((x + ONE // 2) >> 24, width)
        around = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        taken: NDArray[Any] = around.reshape(len(image), -1).take(row * (width + 2) + column, axis=1)
        return taken
    row, down = _split(y, height)
    column, right = _split(x, width)
    first = row * (width + 2) + column
    return _bytes(image, first, down, right) if image.dtype == np.uint8 else _floats(image, first, down, right)


def _bordered(place: Places, size: int) -> Places:
    """The index in an axis with one 0 on each side."""
    return np.clip(place + 1, 0, size + 1)


def _split(place: Places, size: int) -> tuple[Places, NDArray[np.uint32]]:
    """The index of the pixel before a place, in an axis with zeros around, and the rest in 1/256."""
    fine = place + ONE // _FINE // 2
    fine >>= 16
    np.maximum(fine, -_FINE, out=fine)
    np.minimum(fine, size * _FINE, out=fine)
    rest = (fine & (_FINE - 1)).astype(np.uint32)
    fine >>= 8
    fine += 1
    return fine, rest


def _bytes(image: NDArray[Any], first: Places, down: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[Any]:
    """All channels of a pixel are computed in one u32: two at a time, each in 16 bits."""
    count, height, width = image.shape
    # Rows of zeros after the end: a place on the border has neighbours after it.
    pixels = np.zeros((height + 4, width + 2, 4), np.uint8)
    for channel, plane in enumerate(image):  # faster than all channels at once
        pixels[1 : height + 1, 1 : width + 1, channel] = plane
    flat = pixels.view("<u4").astype(np.uint32, copy=False).reshape(-1)
    both = (down * right + np.uint32(128)) >> np.uint32(8)
    weights = (np.uint32(_FINE) - down - right + both, right - both, down - both, both)
    even, odd = np.full(both.shape, _HALF), np.full(both.shape, _HALF)
    taken, part = np.empty_like(even), np.empty_like(even)
    for offset, weight in zip((0, 1, width + 2, width + 3), weights):
        flat[offset:].take(first, out=taken, mode="clip")  # "clip" reads in place; all indices are in range
        even += np.multiply(np.bitwise_and(taken, _EVEN, out=part), weight, out=part)
        taken >>= np.uint32(8)
        odd += np.multiply(np.bitwise_and(taken, _EVEN, out=part), weight, out=part)
    even >>= np.uint32(8)
    even &= _EVEN
    odd &= ~_EVEN
    even |= odd
    bytes = even.astype("<u4", copy=False).view(np.uint8).reshape(*even.shape, 4)
    return np.moveaxis(bytes[..., :count], -1, 0)


def _floats(image: NDArray[Any], first: Places, down: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[Any]:
    count, _, width = image.shape
    flat = np.pad(image, ((0, 0), (1, 3), (1, 1))).reshape(count, -1)
    unit = image.dtype.type(1 / _FINE)
    y, x = down.astype(image.dtype) * unit, right.astype(image.dtype) * unit
    one = image.dtype.type(1)
    weights = ((one - y) * (one - x), (one - y) * x, y * (one - x), y * x)
    parts = [flat.take(first + at, axis=1) * w for at, w in zip((0, 1, width + 2, width + 3), weights)]
    found: NDArray[Any] = (parts[0] + parts[1]) + (parts[2] + parts[3])
    return found
