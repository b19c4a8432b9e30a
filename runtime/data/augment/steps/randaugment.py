"""``{randaugment: {ops: 2, magnitude: 9}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment import policy
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.step import ByRow, Step, internal, register, whole


@register
@dataclass(frozen=True)
class RandAugment(ByRow):
    """``ops`` operations in sequence, each drawn from 14, at ``magnitude`` of 30 (Cubuk et al. 2019,
    https://arxiv.org/abs/1909.13719), with torchvision's ranges."""

    ops: int = whole(0, 16, 2)
    magnitude: int = whole(0, 30, 9)
    mask: bool = internal(False)

    kind = "randaugment"
    example = "{randaugment: {ops: 2, magnitude: 9}}"

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        policy.check(self.kind, shape, dtype, mask=self.mask)

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        for _ in range(self.ops):
            name = policy.NAMES[draw.below(len(policy.NAMES))]
            operation = policy.RAND[name]
            image = operation.apply(image, self.magnitude / 30, negative=draw.unit() < 0.5, mask=self.mask)
        return image

    def of_mask(self) -> Step:
        return RandAugment(self.ops, self.magnitude, mask=True)
