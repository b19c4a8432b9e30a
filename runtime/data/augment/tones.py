"""Colours of images u8[C, H, W], in integers or in rounded IEEE operations, one element at a time.

A factor of 1 changes nothing. Results are rounded to the nearest integer, a half upwards, and cut to 0..255.
Grey is (19595 R + 38470 G + 7471 B + 2^15) / 2^16, rounded down: the weights of ITU-R 601.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_UNIT: Final = 1 << 16  # of a factor
_VALUES: Final = np.arange(256, dtype=np.int64)


def mapped(image: NDArray[Any], table: NDArray[Any]) -> NDArray[Any]:
    """Each value v as table[v], cut to 0..255."""
    return np.take(np.clip(table, 0, 255).astype(np.uint8), image)


def _blend_table(factor: float, base: int) -> NDArray[Any]:
    """base + (v - base) * factor for each value v."""
    found: NDArray[Any] = base + _rounded((_VALUES - base) * round(factor * _UNIT))
    return found


def _rounded(parts: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = (parts + _UNIT // 2) >> 16
    return found


def brightness(image: NDArray[Any], factor: float) -> NDArray[Any]:
    return mapped(image, _blend_table(factor, 0))


def contrast(image: NDArray[Any], factor: float) -> NDArray[Any]:
    """Differences from the mean grey, multiplied."""
    shades = grey(image) if len(image) == 3 else image
    total = int(shades.sum(dtype=np.int64))
    return mapped(image, _blend_table(factor, (2 * total + shades.size) // (2 * shades.size)))


def saturation(image: NDArray[Any], factor: float) -> NDArray[Any]:
    """Differences of a pixel's colours from its grey, multiplied."""
    base = grey(image).astype(np.int32)
    change = _rounded((image - base) * np.int32(round(factor * _UNIT)))
    found: NDArray[Any] = np.clip(base + change, 0, 255).astype(np.uint8)
    return found


def grey(image: NDArray[Any]) -> NDArray[Any]:
    """u8[H, W] of u8[3, H, W]."""
    red, green, blue = image.astype(np.uint32)
    shades = np.uint32(19595) * red + np.uint32(38470) * green + np.uint32(7471) * blue + np.uint32(1 << 15)
    found: NDArray[Any] = (shades >> np.uint32(16)).astype(np.uint8)
    return found


def hue(image: NDArray[Any], turn: float) -> NDArray[Any]:
    """The hue moved by ``turn`` of a whole circle, in f32: saturation and value of HSV stay."""
    red, green, blue = values = image.astype(np.float32)
    high, low = values.max(axis=0), values.min(axis=0)
    span = high - low
    safe = np.where(span == 0, np.float32(1), span)
    six = np.where(
        high == red,
        (green - blue) / safe,
        np.where(high == green, (blue - red) / safe + np.float32(2), (red - green) / safe + np.float32(4)),
    )
    six = six + np.float32(6) * np.float32(turn)
    found = np.empty_like(image)
    for channel, place in enumerate((5, 3, 1)):
        at = six + np.float32(place)
        at = at - np.float32(6) * np.floor(at / np.float32(6))
        part = np.clip(np.minimum(at, np.float32(4) - at), np.float32(0), np.float32(1))
        found[channel] = np.clip(np.floor(high - span * part + np.float32(0.5)), 0, 255)
    return found


def inverted_above(image: NDArray[Any], threshold: int) -> NDArray[Any]:
    """Solarize: values from ``threshold`` on become 255 - v."""
    return mapped(image, np.where(threshold <= _VALUES, 255 - _VALUES, _VALUES))


def posterized(image: NDArray[Any], bits: int) -> NDArray[Any]:
    """The upper ``bits`` bits of each value."""
    return mapped(image, _VALUES & (0xFF << (8 - bits)))


def stretched(image: NDArray[Any]) -> NDArray[Any]:
    """Autocontrast: each channel's smallest value becomes 0, its largest 255."""
    found = np.empty_like(image)
    for channel, plane in enumerate(image):
        low, high = int(plane.min()), int(plane.max())
        span = high - low
        found[channel] = mapped(plane, (2 * 255 * (_VALUES - low) + span) // (2 * span)) if span else plane
    return found


def equalized(image: NDArray[Any]) -> NDArray[Any]:
    """Each channel with an even histogram, as in pillow and torchvision."""
    found = np.empty_like(image)
    for channel, plane in enumerate(image):
        counts = np.bincount(plane.reshape(-1), minlength=256)
        last = int(counts[np.flatnonzero(counts)[-1]])
        step = (int(counts.sum()) - last) // 255
        before = np.cumsum(counts) - counts
        found[channel] = mapped(plane, (before + step // 2) // step) if step else plane
    return found


def sharpness(image: NDArray[Any], factor: float) -> NDArray[Any]:
    """Differences from the smoothed image (3 x 3, weights 1 and in the middle 5), multiplied. The edge stays."""
    wide = image.astype(np.int32)
    _, height, width = image.shape
    if height < 3 or width < 3:
        return image
    total = 4 * wide[:, 1:-1, 1:-1]
    for y in range(3):
        for x in range(3):
            total = total + wide[:, y : height - 2 + y, x : width - 2 + x]
    smooth = (2 * total + 13) // 26
    change = _rounded((wide[:, 1:-1, 1:-1] - smooth) * np.int32(round(factor * _UNIT)))
    found = image.copy()
    found[:, 1:-1, 1:-1] = np.clip(smooth + change, 0, 255)
    return found
