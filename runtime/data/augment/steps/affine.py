"""``{affine: {rotate: 10, translate: 0.1, scale: [0.9, 1.1], shear: 5}}``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dslc.runtime.data.augment.affine import around_centre
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.exact import tangent
from dslc.runtime.data.augment.step import ByRow, Step, flag, number, pair, register
from dslc.runtime.data.augment.warp import transformed


@register
@dataclass(frozen=True)
class Affine(ByRow):
    """Turns by up to ``rotate`` degrees, moves by up to ``translate`` of each side, scales by a factor in ``scale``,
    and shears by up to ``shear`` degrees in x."""

    rotate: float = number(0.0, 180.0, 0.0)
    translate: float = number(0.0, 1.0, 0.0)
    scale: tuple[float, float] = pair(0.01, 100.0, (1.0, 1.0))
    shear: float = number(0.0, 80.0, 0.0)
    nearest: bool = flag(False)

    kind = "affine"
    example = "{affine: {rotate: 10, translate: 0.1, scale: [0.9, 1.1], shear: 5}}"

    def image(self, image: NDArray[Any], draw: Stream) -> NDArray[Any]:
        _, height, width = image.shape
        degrees = draw.between(-self.rotate, self.rotate)
        x, y = (draw.between(-self.translate, self.translate) * size for size in (width, height))
        scale = draw.between(*self.scale)
        shear = tangent(draw.between(-self.shear, self.shear))
        matrix = around_centre((height, width), degrees=degrees, scale=scale, shear=(shear, 0.0), shift=(x, y))
        return transformed(image, matrix, nearest=self.nearest)

    def of_mask(self) -> Step:
        return replace(self, nearest=True)
