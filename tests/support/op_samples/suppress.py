"""Samples of suppress, one element at a time."""

from __future__ import annotations

import numpy as np
from op_samples.sample import Sample, Spec


def left(over: np.ndarray) -> np.ndarray:
    keep = np.zeros(over.shape[:-1], bool)
    for line in np.ndindex(over.shape[:-2]):
        stay: list[int] = []
        for i in range(over.shape[-1]):
            if not any(over[(*line, j, i)] for j in stay):
                stay.append(i)
        keep[(*line, stay)] = True
    return keep


SHAPES = [(5, 5), (3, 40, 40), (2, 2, 7, 7), (1, 1), (0, 4, 4), (2, 0, 0)]
SPARSE = np.random.default_rng(0).random((70, 70)) < 0.05
SAMPLES: dict[str, list[Sample]] = {
    "suppress": [
        *(Sample([Spec(shape, "bool")], reference=left) for shape in SHAPES),
        Sample([SPARSE], reference=left),
    ],
}
