"""``{trivialaugment: {}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment import policy
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.step import ByRow, Step, internal, register


@register
@dataclass(frozen=True)
class TrivialAugment(ByRow):
    """One operation drawn from 14, at one of 31 magnitudes (TrivialAugment Wide, Mueller and Hutter 2021,
    https://arxiv.org/abs/2103.10158), with torchvision's ranges."""

    mask: bool = internal(False)

    kind = "trivialaugment"
    example = "{trivialaugment: {}}"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        policy.check(self.kind, shape, dtype, mask=self.mask)

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        name = policy.NAMES[draw.below(len(policy.NAMES))]
        strength, negative = draw.below(31) / 30, draw.unit() < 0.5
        return policy.WIDE[name].apply(image, strength, negative=negative, mask=self.mask)

    def of_mask(self) -> Step:
        return TrivialAugment(mask=True)
