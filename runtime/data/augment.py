"""Declared augmentation: transforms the rows of an input before they enter a batch.

    data: {augment: {image: [{flip: 0.5}, {crop: {pad: 2}}, {normalize: {mean: [0.5], std: [0.2], scale: 255}}]}}

``flip`` (left and right) and ``crop`` (pad with zeros, then take a window of the original size) apply only in training,
``normalize`` always. The draws of a row come from Philox4x64-10 with the key (seed, epoch) and the counter
(0, 0, row, 1); step k of the list takes the 64-bit outputs 2k and 2k + 1. So the draws depend only on (seed, epoch,
row), never on workers or batches, and an image and its mask get the same transforms if their lists are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

_CHANNELS: Final = (1, 2, 3, 4)


@dataclass(frozen=True)
class Flip:
    """Mirrors left and right with probability ``p``."""

    p: float


@dataclass(frozen=True)
class Crop:
    """A random window of the image's own size in the image padded with ``pad`` zeros on each side."""

    pad: int


@dataclass(frozen=True)
class Normalize:
    """(x / scale - mean) / std per channel; a single number applies to all channels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1.0


Step: TypeAlias = Flip | Crop | Normalize
_KINDS: Final[dict[str, Callable[..., Step]]] = {"flip": Flip, "crop": Crop, "normalize": Normalize}


def as_data(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as JSON data, for a worker."""
    return [{"kind": type(step).__name__.lower(), **asdict(step)} for step in steps]


def of_data(data: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    def made(item: Mapping[str, Any]) -> Step:
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in item.items() if k != "kind"}
        return _KINDS[item["kind"]](**fields)

    return tuple(made(item) for item in data)


def axes(shape: tuple[int, ...]) -> tuple[int, int, int | None]:
    """The axes of height, width and channels in a row. ValueError for a row that is not an image.

    [H, W]; [C, H, W] if C is at most 4; else [H, W, C].
    """
    if len(shape) == 2:
        return 0, 1, None
    if len(shape) == 3 and shape[0] in _CHANNELS:
        return 1, 2, 0
    if len(shape) == 3 and shape[2] in _CHANNELS:
        return 0, 1, 2
    raise ValueError(f"a row of shape {list(shape)} is not an image: [C, H, W], [H, W, C] or [H, W]")


def check(steps: Sequence[Step], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises ValueError with the reason if the steps do not fit rows of this shape and dtype."""
    height, width, _ = axes(shape) if any(not isinstance(s, Normalize) for s in steps) else (0, 0, None)
    for step in steps:
        if isinstance(step, Normalize):
            if dtype.kind != "f":
                raise ValueError(f"`normalize` gives floats, but the input is {dtype.name}")
            count = _channel_count(shape)
            for name, values in (("mean", step.mean), ("std", step.std)):
                if len(values) not in (1, count):
                    raise ValueError(f"`normalize` has {len(values)} values for `{name}`, the rows {count} channels")
        elif isinstance(step, Crop) and step.pad > min(shape[height], shape[width]):
            raise ValueError(f"`crop` pads by {step.pad}, more than the image has: {list(shape)}")


def apply(
    steps: Sequence[Step], batch: NDArray[Any], rows: NDArray[np.int64], seed: int, epoch: int, *, training: bool
) -> NDArray[Any]:
    """The batch [n, ...] of these rows after all steps; may modify the input batch. Keeps the dtype."""
    wanted = training and any(not isinstance(step, Normalize) for step in steps)
    draws = _draws(seed, epoch, rows, 2 * len(steps)) if wanted else None
    for number, step in enumerate(steps):
        if isinstance(step, Normalize):
            batch = _normalized(step, batch)
        elif draws is not None:
            mine = draws[:, 2 * number : 2 * number + 2]
            batch = _flipped(step, batch, mine) if isinstance(step, Flip) else _cropped(step, batch, mine)
    return batch


def _draws(seed: int, epoch: int, rows: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    key = np.array([seed, epoch], dtype=np.uint64)
    found = np.empty((len(rows), count), np.uint64)
    for at, row in enumerate(rows.tolist()):
        found[at] = np.random.Philox(key=key, counter=np.array([0, 0, row, 1], np.uint64)).random_raw(count)
    return found


def _flipped(step: Flip, batch: NDArray[Any], draws: NDArray[np.uint64]) -> NDArray[Any]:
    _, width, _ = axes(batch.shape[1:])
    # 53 bits as a number in [0, 1): p = 1 flips every row, p = 0 none.
    chosen = (draws[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53 < step.p
    batch[chosen] = np.flip(batch[chosen], axis=1 + width)
    return batch


def _cropped(step: Crop, batch: NDArray[Any], draws: NDArray[np.uint64]) -> NDArray[Any]:
    height, width, _ = axes(batch.shape[1:])
    around = [(0, 0)] * batch.ndim
    around[1 + height] = around[1 + width] = (step.pad, step.pad)
    padded = np.pad(batch, around)
    places = (draws % np.uint64(2 * step.pad + 1)).astype(np.int64)
    found = np.empty_like(batch)
    window: list[Any] = [slice(None)] * (batch.ndim - 1)
    for at, (top, left) in enumerate(places.tolist()):
        window[height] = slice(top, top + batch.shape[1 + height])
        window[width] = slice(left, left + batch.shape[1 + width])
        found[at] = padded[at][tuple(window)]
    return found


def _channel_count(shape: tuple[int, ...]) -> int:
    try:
        _, _, channels = axes(shape)
    except ValueError:
        return 1
    return 1 if channels is None else shape[channels]


def _normalized(step: Normalize, batch: NDArray[Any]) -> NDArray[Any]:
    """Computed in the batch's own dtype: one division, one subtraction, one division, each rounded."""
    sizes = [1] * (batch.ndim - 1)
    if len(step.mean) > 1 or len(step.std) > 1:
        _, _, channels = axes(batch.shape[1:])
        assert channels is not None, "checked: several values need channels"
        sizes[channels] = -1
    mean, std = (np.array(v, batch.dtype).reshape(sizes if len(v) > 1 else ()) for v in (step.mean, step.std))
    found: NDArray[Any] = (batch / batch.dtype.type(step.scale) - mean) / std
    return found
