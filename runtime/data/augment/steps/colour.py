"""``{colour: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}``."""

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
class Colour(Coloring):
    """Changes brightness, contrast and saturation by factors from 1 - x to 1 + x, and turns the hue by up to x of the
    circle, in random order, as torchvision's ColorJitter."""

    brightness: float = number(0.0, 10.0, 0.0)
    contrast: float = number(0.0, 10.0, 0.0)
    saturation: float = number(0.0, 10.0, 0.0)
    hue: float = number(0.0, 0.5, 0.0)

    kind = "colour"
    example = "{colour: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        check_pixels(self.kind, shape, dtype, coloured=bool(self.saturation or self.hue))

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        order = draw.order(4)
        amounts = [draw.between(max(0.0, 1.0 - x), 1.0 + x) for x in (self.brightness, self.contrast, self.saturation)]
        amounts.append(draw.between(-self.hue, self.hue))
        for which in order:
            if (self.brightness, self.contrast, self.saturation, self.hue)[which]:
                change = (tones.brightness, tones.contrast, tones.saturation, tones.hue)[which]
                image = change(image, amounts[which])
        return image
