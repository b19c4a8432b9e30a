"""``{normalize: {mean: [0.5], std: [0.2], scale: 255}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.augment.draws import StepDraws
from dslc.runtime.data.augment.planes import axes
from dslc.runtime.data.augment.step import Step, channels, number, register

_AT_ONCE: Final = 256 << 10  # bytes


@register
@dataclass(frozen=True)
class Normalize(Step):
    """(x / scale - mean) / std per channel; a single number applies to all channels."""

    mean: tuple[float, ...] = channels()
    std: tuple[float, ...] = channels()
    scale: float = number(-1e30, 1e30, 1.0)

    kind = "normalize"
    example = "{normalize: {mean: [0.5], std: [0.2], scale: 255}}"
    always = True
    pixels = False

    def __post_init__(self) -> None:
        if 0.0 in self.std or self.scale == 0.0:
            raise ValueError("would divide by zero: `std` is the standard deviation of the data")

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype.kind != "f":
            raise ValueError(f"`normalize` gives floats, but the input is {dtype.name}")
        count = _channel_count(shape)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, count):
                raise ValueError(f"`normalize` has {len(values)} values for `{name}`, the rows {count} channels")

    def apply(self, batch: NDArray[Any], draws: StepDraws) -> NDArray[Any]:
        """Computed in the batch's own dtype: one division, one subtraction, one division, each rounded."""
        sizes = [1] * (batch.ndim - 1)
        if len(self.mean) > 1 or len(self.std) > 1:
            _, _, channel = axes(batch.shape[1:])
            assert channel is not None, "checked: several values need channels"
            sizes[channel] = -1
        mean, std = (np.array(v, batch.dtype).reshape(sizes if len(v) > 1 else ()) for v in (self.mean, self.std))
        if len(sizes) > 2 and sizes[-1] == -1:  # channels last: numpy's loops are as long as a whole line
            line = batch.shape[-2:]
            mean, std = (np.ascontiguousarray(np.broadcast_to(v.reshape(-1), line)) for v in (mean, std))
        scale = batch.dtype.type(self.scale)
        rows = max(1, _AT_ONCE // max(1, batch[:1].nbytes))
        for start in range(0, len(batch), rows):  # in parts that stay in a processor's cache
            part = batch[start : start + rows]
            np.divide(part, scale, out=part)
            np.subtract(part, mean, out=part)
            np.divide(part, std, out=part)
        return batch


def _channel_count(shape: tuple[int, ...]) -> int:
    try:
        _, _, channel = axes(shape)
    except ValueError:
        return 1
    return 1 if channel is None else shape[channel]
