"""``{rotate: 15}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dslc.runtime.data.augment.affine import around_centre
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.step import ByRow, Step, flag, number, register
from dslc.runtime.data.augment.warp import transformed


@register
@dataclass(frozen=True)
class Rotate(ByRow):
    """Turns the image around its centre by an angle between -``degrees`` and ``degrees``."""

    degrees: float = number(0.0, 180.0)
    nearest: bool = flag(False)

    kind = "rotate"
    example = "{rotate: 15}"
    short = "degrees"

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        angle = draw.between(-self.degrees, self.degrees)
        return transformed(image, around_centre(image.shape[1:], degrees=angle), nearest=self.nearest)

    def of_mask(self) -> Step:
        return Rotate(self.degrees, nearest=True)
