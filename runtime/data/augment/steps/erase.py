"""``{erase: {p: 0.25, area: [0.02, 0.33], ratio: [0.3, 3.3], value: 0}}``."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.exact import exp, log
from dslc.runtime.data.augment.step import ByRow, number, pair, register

_TRIES: Final = 10


@register
@dataclass(frozen=True)
class Erase(ByRow):
    """With probability ``p``, sets a window with a share ``area`` of the image to ``value``, as torchvision's
    RandomErasing. After ``normalize``, the value 0 is the mean of the data."""

    p: float = number(0.0, 1.0, 0.5)
    area: tuple[float, float] = pair(0.0, 1.0, (0.02, 0.33))
    ratio: tuple[float, float] = pair(0.01, 100.0, (0.3, 3.3))
    value: float = number(-1e30, 1e30, 0.0)

    kind = "erase"
    example = "{erase: {p: 0.25, area: [0.02, 0.33]}}"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().check(shape, dtype)
        check_value(self.kind, self.value, dtype)

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        if draw.unit() >= self.p:
            return image
        _, height, width = image.shape
        low, high = (log(bound) for bound in self.ratio)
        for _ in range(_TRIES):
            pixels = height * width * draw.between(*self.area)
            ratio = exp(draw.between(low, high))
            tall, wide = round(sqrt(pixels * ratio)), round(sqrt(pixels / ratio))
            if tall < height and wide < width:
                top, left = draw.below(height - tall + 1), draw.below(width - wide + 1)
                image[:, top : top + tall, left : left + wide] = self.value
                break
        return image


def check_value(kind: str, value: float, dtype: np.dtype[Any]) -> None:
    """Raises ValueError if an image of this dtype cannot hold the value."""
    if dtype.kind == "f":
        return
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype.name).min, np.iinfo(dtype.name).max)
    if value != int(value) or not low <= value <= high:
        raise ValueError(f"`{kind}` writes {value:g}, which {dtype.name} does not hold")
