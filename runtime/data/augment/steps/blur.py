"""``{blur: {p: 0.5, sigma: [0.1, 2]}}``."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.exact import exp
from dslc.runtime.data.augment.step import Coloring, number, pair, register

_UNIT: Final = 1 << 14  # of a weight: 8 bits of a pixel, 8 of a first result, and 14 more fit in 32


@register
@dataclass(frozen=True)
class Blur(Coloring):
    """With probability ``p``, a Gaussian blur with a standard deviation in ``sigma``, in pixels. The kernel reaches 3
    sigma; the image is mirrored at its edges."""

    p: float = number(0.0, 1.0, 0.5)
    sigma: tuple[float, float] = pair(0.01, 16.0, (0.1, 2.0))

    kind = "blur"
    example = "{blur: {p: 0.5, sigma: [0.1, 2]}}"

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        if draw.unit() >= self.p:
            return image
        weights = kernel(draw.between(*self.sigma))
        return _along(_along(image, weights, 1), weights, 2)


def kernel(sigma: float) -> list[int]:
    """The weights of the offsets 0, 1, ... on both sides; over both sides they sum to 2^14."""
    reach = ceil(3.0 * sigma)
    heights = [exp(-(at * at) / (2.0 * sigma * sigma)) for at in range(reach + 1)]
    total = heights[0] + 2.0 * sum(heights[1:])
    sides = [round(_UNIT * height / total) for height in heights[1:]]
    return [_UNIT - 2 * sum(sides), *sides]


def _along(image: NDArray[Any], weights: list[int], axis: int) -> NDArray[Any]:
    size, reach = image.shape[axis], len(weights) - 1
    around = [(0, 0)] * 3
    around[axis] = (reach, reach)
    wide = np.pad(image.astype(np.uint32), around, mode="reflect" if size > 1 else "edge")

    def part(start: int) -> NDArray[np.uint32]:
        window = [slice(None)] * 3
        window[axis] = slice(start, start + size)
        return wide[tuple(window)]

    total = np.uint32(weights[0]) * part(reach) + np.uint32(_UNIT // 2)
    for offset, weight in enumerate(weights[1:], 1):
        total += np.uint32(weight) * (part(reach - offset) + part(reach + offset))
    return (total >> np.uint32(14)).astype(np.uint8)
