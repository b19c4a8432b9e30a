"""The 14 operations of RandAugment and TrivialAugment, with the ranges of torchvision. Geometry is ``nearest``, as
there; a place outside of the image is 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment import tones
from dslc.runtime.data.augment.affine import around_centre
from dslc.runtime.data.augment.planes import axes
from dslc.runtime.data.augment.step import check_pixels
from dslc.runtime.data.augment.warp import transformed


class Operation(ABC):
    @abstractmethod
    def apply(self, image: NDArray[Any], strength: float, *, negative: bool, mask: bool) -> NDArray[Any]:
        """The image [C, H, W] after the operation at ``strength`` of 0 to 1. ``mask``: only places change."""


@dataclass(frozen=True)
class Move(Operation):
    """A map whose parameter ``kind`` is at most ``most``; ``of_side``: in parts of the image's
    side. An image moves by whole pixels."""

    kind: str
    most: float
    of_side: bool = False

    def apply(self, image: NDArray[Any], strength: float, *, negative: bool, mask: bool) -> NDArray[Any]:
        _, height, width = image.shape
        amount = strength * self.most * (-1.0 if negative else 1.0)
        if self.of_side:
            amount *= width if self.kind.endswith("x") else height
        if self.kind.startswith("move"):
            amount = float(int(amount))
        x, y = (amount, 0.0) if self.kind.endswith("x") else (0.0, amount)
        size = (height, width)
        if self.kind == "rotate":
            matrix = around_centre(size, degrees=-amount)
        elif self.kind.startswith("move"):
            matrix = around_centre(size, shift=(x, y))
        else:  # a shear leaves the upper left corner of the first pixel in place
            matrix = (1.0, x, x / 2, y, 1.0, y / 2)
        return transformed(image, matrix, nearest=True)


@dataclass(frozen=True)
class Tone(Operation):
    """A change of colours: ``change(image, strength with its sign)``."""

    change: Callable[[NDArray[Any], float], NDArray[Any]]
    signed: bool = False

    def apply(self, image: NDArray[Any], strength: float, *, negative: bool, mask: bool) -> NDArray[Any]:
        return image if mask else self.change(image, -strength if self.signed and negative else strength)


def _factor(change: Callable[[NDArray[Any], float], NDArray[Any]], most: float) -> Tone:
    return Tone(lambda image, strength: change(image, 1.0 + most * strength), signed=True)


def _bits(most: int) -> Tone:
    """Posterize: from 8 bits down by ``most``."""
    return Tone(lambda image, strength: tones.posterized(image, 8 - round(most * strength)))


def _threshold(strength: float) -> int:
    """Solarize: the least value that is inverted, at or above 255 * (1 - strength). The strength is a part of 30, so a
    product next to an integer is meant to be it."""
    return ceil(255 * (1.0 - strength) - 1e-6)


def _operations(shear: float, pixels: float | None, degrees: float, factor: float, bits: int) -> dict[str, Operation]:
    """``pixels``: the largest shift in pixels; None for RandAugment's part of the side."""
    return {
        "identity": Tone(lambda image, strength: image),
        "shear_x": Move("shear_x", shear),
        "shear_y": Move("shear_y", shear),
        "translate_x": Move("move_x", _PART if pixels is None else pixels, of_side=pixels is None),
        "translate_y": Move("move_y", _PART if pixels is None else pixels, of_side=pixels is None),
        "rotate": Move("rotate", degrees),
        "brightness": _factor(tones.brightness, factor),
        "saturation": _factor(tones.saturation, factor),
        "contrast": _factor(tones.contrast, factor),
        "sharpness": _factor(tones.sharpness, factor),
        "posterize": _bits(bits),
        "solarize": Tone(lambda image, strength: tones.inverted_above(image, _threshold(strength))),
        "autocontrast": Tone(lambda image, strength: tones.stretched(image)),
        "equalize": Tone(lambda image, strength: tones.equalized(image)),
    }


_PART: Final = 150.0 / 331.0  # of the paper's images of 331 pixels
RAND: Final = _operations(0.3, None, 30.0, 0.9, 4)
WIDE: Final = _operations(0.99, 32.0, 135.0, 0.99, 6)
NAMES: Final = tuple(RAND)


def check(kind: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, mask: bool) -> None:
    """Raises ValueError with the reason if the operations do not fit such rows."""
    if mask:
        axes(shape)
    else:
        check_pixels(kind, shape, dtype, coloured=True)
