"""``{flip: 0.5}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import StepDraws
from dslc.runtime.data.augment.planes import planes
from dslc.runtime.data.augment.step import Step, number, register


@register
@dataclass(frozen=True)
class Flip(Step):
    """Mirrors left and right with probability ``p``."""

    p: float = number(0.0, 1.0)

    kind = "flip"
    example = "{flip: 0.5}"
    short = "p"
    pixels = False

    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        images = planes(batch)
        # 53 bits as a number in [0, 1): p = 1 flips every row, p = 0 none.
        chosen = (draws.pairs()[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self.p
        for channel in range(images.shape[1]):  # faster than all channels at once
            images[chosen, channel] = images[chosen, channel][..., ::-1]
        return batch

    def of_mask(self) -> Step:
        return self
