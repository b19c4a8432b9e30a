"""``{grey: 0.2}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment import tones
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.step import Coloring, check_pixels, number, register


@register
@dataclass(frozen=True)
class Grey(Coloring):
    """With probability ``p``, replaces each of the three channels by the grey of the pixel."""

    p: float = number(0.0, 1.0)

    kind = "grey"
    example = "{grey: 0.2}"
    short = "p"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        check_pixels(self.kind, shape, dtype, coloured=True)

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        if draw.unit() < self.p:
            image[...] = tones.grey(image)
        return image
