"""``{crop: {pad: 4}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import StepDraws
from dslc.runtime.data.augment.planes import axes
from dslc.runtime.data.augment.step import Step, register, whole


@register
@dataclass(frozen=True)
class Crop(Step):
    """A random window of the image's own size in the image padded with ``pad`` zeros on each side."""

    pad: int = whole(1, 4096)

    kind = "crop"
    example = "{crop: {pad: 4}}"
    pixels = False

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        height, width, _ = axes(shape)
        if self.pad > min(shape[height], shape[width]):
            raise ValueError(f"`crop` pads by {self.pad}, more than the image has: {list(shape)}")

    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        height, width, _ = axes(batch.shape[1:])
        around = [(0, 0)] * batch.ndim
        around[1 + height] = around[1 + width] = (self.pad, self.pad)
        padded = np.pad(batch, around)
        places = (draws.pairs() % np.uint64(2 * self.pad + 1)).astype(np.int64)
        found = np.empty_like(batch)
        window: list[Any] = [slice(None)] * (batch.ndim - 1)
        for at, (top, left) in enumerate(places.tolist()):
            window[height] = slice(top, top + batch.shape[1 + height])
            window[width] = slice(left, left + batch.shape[1 + width])
            found[at] = padded[at][tuple(window)]
        return found

    def of_mask(self) -> Step:
        return self
