"""Mixup and cutmix: each row of a training batch is mixed with the next row (the last one with the first).

    data: {mix: {image: image, label: label, other: label_b, share: lam, mixup: 0.2, cutmix: 1}}

The model's ``train`` has two inputs that no file provides: ``other``, the label of the mixed-in row, and ``share``, the
part of the row itself, from 0 to 1. A batch has one share: a draw of Beta(alpha, alpha), rounded to 2^-16 (mixup,
https://arxiv.org/abs/1710.09412), or the part of the image that is not covered by the other row's window (cutmix,
https://arxiv.org/abs/1905.04899). The draws depend on (seed, epoch, first row of the batch) alone. In evaluation
nothing is mixed: the share is 1.

A mixed u8 is rounded once, in integers; a float is the sum of two rounded products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import Stream, batch_stream
from dslc.runtime.data.augment.exact import exp, log
from dslc.runtime.data.augment.planes import axes, planes

_ONE: Final = 1 << 16  # a share of 1
_LEAST: Final = -700.0  # exponents below give 0


@dataclass(frozen=True)
class Mixed:
    """What is done to a batch: rows with the part ``share`` of 2^16 (mixup); or a window around the point ``centre``
    (y, x, in parts of the sides) with sides of the part ``side`` (cutmix)."""

    share: int
    centre: tuple[float, float] | None = None
    side: float = 0.0

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Top, bottom, left and right of the window in an image of this size."""
        assert self.centre is not None
        ends = []
        for place, size in zip(self.centre, (height, width)):
            middle, half = int(place * size), int(self.side * size) // 2
            ends += [max(0, middle - half), min(size, middle + half)]
        return ends[0], ends[1], ends[2], ends[3]


@dataclass(frozen=True)
class Mix:
    """``image``: the input that is mixed, with ``label``; ``other`` and ``share``: the inputs that tell with what.
    ``mixup`` and ``cutmix``: alpha, 0 for none; if both are given, each batch draws one. ``p``: the probability that a
    batch is mixed at all."""

    image: str
    label: str
    other: str
    share: str
    mixup: float = 0.0
    cutmix: float = 0.0
    p: float = 1.0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_data(cls, data: Mapping[str, Any] | None) -> Mix | None:
        return None if data is None else cls(**data)

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raises ValueError with the reason if such rows cannot be mixed."""
        if self.mixup and dtype != np.uint8 and dtype.kind != "f":
            raise ValueError(f"`mixup` mixes floats or u8, not {dtype.name}")
        if self.cutmix:
            axes(shape)

    def drawn(self, seed: int, epoch: int, rows: NDArray[np.int64]) -> Mixed:
        draw = batch_stream(seed, epoch, rows)
        if draw.unit() >= self.p:
            return Mixed(_ONE)
        cut = draw.unit() < 0.5 if self.mixup and self.cutmix else bool(self.cutmix)
        share = beta(self.cutmix if cut else self.mixup, draw)
        if not cut:
            return Mixed(round(share * _ONE))
        return Mixed(_ONE, (draw.unit(), draw.unit()), sqrt(1.0 - share))

    def mix(self, batch: NDArray[Any], rows: NDArray[np.int64], seed: int, epoch: int) -> None:
        """Mixes the rows of a batch [n, ...] in place."""
        how = self.drawn(seed, epoch, rows)
        first = batch[0].copy()
        if how.centre is not None:
            _, _, height, width = planes(batch).shape
            top, bottom, left, right = how.window(height, width)
            images, others = planes(batch), planes(first[None])[0]
            for at, image in enumerate(images):
                other = images[at + 1] if at + 1 < len(images) else others
                image[:, top:bottom, left:right] = other[:, top:bottom, left:right]
        elif how.share < _ONE:
            for at, row in enumerate(batch):
                row[...] = _blend(row, batch[at + 1] if at + 1 < len(batch) else first, how.share)

    def labels(
        self, label: NDArray[Any], shape: tuple[int, ...], rows: NDArray[np.int64], seed: int, epoch: int
    ) -> tuple[NDArray[Any], float]:
        """The labels of the mixed-in rows, and the share of the rows themselves; ``shape``: of a row of the image."""
        how, share = self.drawn(seed, epoch, rows), 1.0
        if how.centre is None:
            share = how.share / _ONE
        else:
            height, width, _ = axes(shape)
            top, bottom, left, right = how.window(shape[height], shape[width])
            share = 1.0 - (bottom - top) * (right - left) / (shape[height] * shape[width])
        return np.roll(label, -1, axis=0), share


def _blend(row: NDArray[Any], other: NDArray[Any], share: int) -> NDArray[Any]:
    found: NDArray[Any]
    if row.dtype == np.uint8:
        total: NDArray[Any] = row * np.uint32(share) + other * np.uint32(_ONE - share) + np.uint32(_ONE // 2)
        found = (total >> np.uint32(16)).astype(np.uint8)
    else:
        found = row * row.dtype.type(share / _ONE) + other * row.dtype.type(1.0 - share / _ONE)
    return found


def beta(alpha: float, draw: Stream) -> float:
    """A draw of Beta(alpha, alpha), by Johnk's method: the powers x and y of two even draws, if x + y is at most 1."""
    while True:
        first, second = draw.unit(), draw.unit()
        if first == 0.0 or second == 0.0:
            continue
        x, y = log(first) / alpha, log(second) / alpha
        high = max(x, y)
        if high + log(exp(max(x - high, _LEAST)) + exp(max(y - high, _LEAST))) <= 0.0:
            return 1.0 / (1.0 + exp(min(max(y - x, _LEAST), -_LEAST)))
