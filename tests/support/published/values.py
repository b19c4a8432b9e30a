"""Weights and inputs that follow from names alone, so that only predictions need to be recorded."""

from __future__ import annotations

import math
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

BATCH: Final = 2
TOKENS: Final = 8
_WHOLE: Final = ("vit", "swin")  # of one image size


def weight(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The value of a weight or statistic of this name in the original: f32, such that activations neither vanish nor
    overflow in deep models."""
    uniform = np.random.default_rng(crc32(name.encode())).random(shape)  # in 0..1
    if name.endswith("running_var"):
        return (0.5 + uniform).astype(np.float32)
    if len(shape) == 1:  # scales near 1, biases and means near 0
        scale = name.endswith("weight")
        return (scale + 0.4 * (uniform - 0.5)).astype(np.float32)
    gain = 5.2 if len(shape) == 4 else 3  # a relu halves the variance; with 6, EfficientNet-B5 is chaotic
    limit = math.sqrt(gain / math.prod(shape[1:]))
    return (limit * (2 * uniform - 1)).astype(np.float32)


def inputs(name: str) -> dict[str, NDArray[Any]]:
    """A batch of the model's inputs by name, as dslc's model takes them; of a text, the second row is padded."""
    rng = np.random.default_rng(crc32(name.encode()))
    if name.startswith(("bert", "gpt2")):
        ids = np.floor(50 * rng.random((BATCH, TOKENS))).astype(np.int32)
        if name.startswith("gpt2"):
            return {"ids": ids}
        mask = (np.arange(TOKENS) < [[TOKENS], [5]]).astype(np.int32)
        segment = np.repeat((np.arange(TOKENS) >= 4).astype(np.int32)[None], BATCH, axis=0)
        return {"ids": ids, "mask": mask, "segment": segment}
    side = image_side(name)
    return {"image": np.floor(256 * rng.random((BATCH, side, side, 3))).astype(np.uint8)}


def image_side(name: str) -> int:
    """Height and width of the images, in pixels."""
    return 224 if name.startswith(_WHOLE) else 64
