"""Affine maps as matrices."""

from __future__ import annotations

from dslc.runtime.data.augment.exact import sin_cos
from dslc.runtime.data.augment.warp import Matrix


def around_centre(
    size: tuple[int, int],
    *,
    degrees: float = 0.0,
    scale: float = 1.0,
    shear: tuple[float, float] = (0.0, 0.0),
    shift: tuple[float, float] = (0.0, 0.0),
) -> Matrix:
    """The map that shows an image of ``size`` (height, width) sheared, turned clockwise and scaled around its centre,
    and then moved by ``shift`` pixels (x, y). ``shear``: tangents of the angles x and y of torchvision's
    ``affine``."""
    sine, cosine = sin_cos(degrees)
    along, across = shear
    # The inverse of a shear [[1, -along], [-across, 1 + along * across]] after the inverse of the turn.
    a = ((1.0 + along * across) * cosine - along * sine) / scale
    b = ((1.0 + along * across) * sine + along * cosine) / scale
    c = (across * cosine - sine) / scale
    d = (across * sine + cosine) / scale
    y, x = (size[0] - 1) / 2, (size[1] - 1) / 2
    left, up = x + shift[0], y + shift[1]
    return (a, b, x - a * left - b * up, c, d, y - c * left - d * up)
