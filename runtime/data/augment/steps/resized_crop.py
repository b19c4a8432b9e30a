"""``{resized_crop: {area: [0.08, 1], ratio: [0.75, 1.333]}}``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Final

from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.exact import exp, log
from dslc.runtime.data.augment.step import ByRow, Step, flag, pair, register
from dslc.runtime.data.augment.warp import resized

_TRIES: Final = 10


@register
@dataclass(frozen=True)
class ResizedCrop(ByRow):
    """A random window with a share ``area`` of the image's pixels and a ratio of width to height in ``ratio``, scaled
    to the row's size, as torchvision's RandomResizedCrop.

    As the first step of an input that is decoded from files, it takes the window from the file's whole image.
    """

    area: tuple[float, float] = pair(0.0001, 1.0, (0.08, 1.0))
    ratio: tuple[float, float] = pair(0.01, 100.0, (3 / 4, 4 / 3))
    nearest: bool = flag(False)

    kind = "resized_crop"
    example = "{resized_crop: {area: [0.08, 1]}}"

    def window(self, height: int, width: int, draw: Stream) -> tuple[int, int, int, int]:
        """Top, left, height and width in an image of this size.

        Ten tries with the ratio's logarithm drawn evenly; if no window fits, the largest one in the middle.
        """
        low, high = (log(bound) for bound in self.ratio)
        for _ in range(_TRIES):
            pixels = height * width * draw.between(*self.area)
            ratio = exp(draw.between(low, high))
            wide, tall = round(sqrt(pixels * ratio)), round(sqrt(pixels / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                return draw.below(height - tall + 1), draw.below(width - wide + 1), tall, wide
        bounded = min(max(width / height, self.ratio[0]), self.ratio[1])
        wide = max(1, min(width, round(height * bounded)))
        tall = max(1, min(height, round(width / bounded)))
        return (height - tall) // 2, (width - wide) // 2, tall, wide

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        return resized(image, self.window(image.shape[1], image.shape[2], draw), nearest=self.nearest)

    def of_mask(self) -> Step:
        return replace(self, nearest=True)
