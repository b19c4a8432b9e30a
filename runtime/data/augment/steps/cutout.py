"""``{cutout: 16}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.step import ByRow, number, register, whole
from dslc.runtime.data.augment.steps.erase import check_value


@register
@dataclass(frozen=True)
class Cutout(ByRow):
    """Sets a square with sides of ``size`` pixels to ``value``. Its centre is any pixel, so a part may lie outside."""

    size: int = whole(0, 4096)
    value: float = number(-1e30, 1e30, 0.0)

    kind = "cutout"
    example = "{cutout: 16}"
    short = "size"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().check(shape, dtype)
        check_value(self.kind, self.value, dtype)

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        _, height, width = image.shape
        top, left = (draw.below(side) - self.size // 2 for side in (height, width))
        image[:, max(0, top) : max(0, top + self.size), max(0, left) : max(0, left + self.size)] = self.value
        return image
