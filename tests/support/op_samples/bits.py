"""Samples of tensors of b1 as bits."""

from __future__ import annotations

import numpy as np
from op_samples.sample import Sample, Spec

SHAPES = ((8,), (2, 3, 4), (5, 16), (0, 3), (300, 8))

SAMPLES: dict[str, list[Sample]] = {
    "pack_bits": [
        Sample(
            [Spec(shape, "bool")],
            {},
            differentiable=(),
            reference=lambda x: (x.reshape(-1, 8) << np.arange(8)).sum(-1).astype(np.uint8),
        )
        for shape in SHAPES
    ],
    "unpack_bits": [
        Sample(
            [Spec((int(np.prod(shape)) // 8,), "uint8", 0, 255)],
            {"shape": shape},
            differentiable=(),
            reference=lambda x, shape: ((x[:, None] >> np.arange(8)) & 1).astype(bool).reshape(shape),
        )
        for shape in SHAPES
    ],
}
