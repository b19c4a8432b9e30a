"""Samples of fourier, whose formula is the sum itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec


def summed(*x: np.ndarray, count: int, sign: int, outputs: int, parts: str, scale: float) -> Any:
    z = x[0] + (1j * x[1] if len(x) == 2 else 0)
    n, k = np.arange(z.shape[-1])[:, None], np.arange(outputs)
    y = scale * (z @ np.exp(sign * 2j * np.pi * (n * k % count) / count))
    return {"re": (y.real,), "im": (y.imag,), "both": (y.real, y.imag)}[parts]


#: shape, order, sign, results, inputs, parts
CASES: list[tuple[tuple[int, ...], int, int, int, int, str]] = [
    ((2, 12), 12, -1, 12, 2, "both"), ((3, 9), 9, -1, 5, 1, "both"), ((2, 2, 5), 8, 1, 8, 2, "re"),
    ((7,), 7, 1, 3, 1, "re"), ((2, 3), 70, -1, 66, 1, "both"), ((0, 4), 4, -1, 4, 1, "re"), ((2, 6), 6, -1, 6, 1, "im"),
    ((2, 5), 5, 1, 4, 2, "im"),
]  # fmt: skip
SAMPLES: dict[str, list[Sample]] = {
    "fourier": [
        Sample(
            [Spec(shape)] * inputs,
            {"count": count, "sign": sign, "outputs": outputs, "parts": parts, "scale": 0.5},
            reference=summed,
        )
        for shape, count, sign, outputs, inputs, parts in CASES
    ]
}
