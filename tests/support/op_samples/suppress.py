"""Samples of suppress, one element at a time."""

from __future__ import annotations

import numpy as np
from op_samples.sample import Sample, Spec


def left(overlap: np.ndarray, limit: float) -> np.ndarray:
    over = overlap > limit
    keep = np.zeros(over.shape[:-1], bool)
    for line in np.ndindex(over.shape[:-2]):
        stay: list[int] = []
        for i in range(over.shape[-1]):
            if not any(over[(*line, j, i)] for j in stay):
                stay.append(i)
        keep[(*line, stay)] = True
    return keep


SHAPES = [(5, 5), (3, 40, 40), (2, 2, 7, 7), (1, 1), (0, 4, 4), (2, 0, 0)]
SAMPLES: dict[str, list[Sample]] = {
    "suppress": [
        Sample([Spec(shape, low=0, high=1, distinct=True)], {"limit": limit}, reference=left)
        for shape, limit in [*((shape, 0.7) for shape in SHAPES), ((70, 70), 0.95)]
    ],
}
