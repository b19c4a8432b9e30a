"""The layout of a row that is an image: [H, W]; [C, H, W] if C is at most 4; else [H, W, C]."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CHANNELS: Final = (1, 2, 3, 4)


def axes(shape: tuple[int, ...]) -> tuple[int, int, int | None]:
    """The axes of height, width and channels in a row. ValueError for a row that is not an image."""
    if len(shape) == 2:
        return 0, 1, None
    if len(shape) == 3 and shape[0] in CHANNELS:
        return 1, 2, 0
    if len(shape) == 3 and shape[2] in CHANNELS:
        return 0, 1, 2
    raise ValueError(f"a row of shape {list(shape)} is not an image: [C, H, W], [H, W, C] or [H, W]")


def planes(batch: NDArray[Any]) -> NDArray[Any]:
    """A view [n, C, H, W] of rows that are images."""
    _, _, channels = axes(batch.shape[1:])
    return batch[:, None] if channels is None else np.moveaxis(batch, 1 + channels, 1)
