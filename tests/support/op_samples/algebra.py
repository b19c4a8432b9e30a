"""Samples of factors of matrices and of triangular systems, against numpy's own."""

from __future__ import annotations

import numpy as np
from op_samples.sample import Sample, Spec


def definite(*shape: int) -> np.ndarray:
    """Positive definite matrices, slightly unsymmetric."""
    rng = np.random.default_rng([7, *shape])
    root = rng.uniform(-1, 1, shape)
    return np.asarray(root @ root.swapaxes(-1, -2) + 2 * np.eye(shape[-1]) + 0.1 * rng.uniform(-1, 1, shape))


def regular(*shape: int) -> np.ndarray:
    """Matrices whose pivots lie apart, so that a small change of an element exchanges no rows."""
    rng = np.random.default_rng([8, *shape])
    found = rng.uniform(-0.3, 0.3, shape) + 2 * np.eye(shape[-1]) * np.linspace(1, 1.5, shape[-1])
    return np.asarray(rng.permuted(found, axis=-2) if shape[-1] < 2 else found[..., rng.permutation(shape[-1]), :])


def root(x: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky((x + x.swapaxes(-1, -2)) / 2) if x.size else x


def factors(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian elimination of one matrix after the other, with whole rows."""
    y, order = x.copy(), np.zeros(x.shape[:-1], np.int32)
    signs = np.ones(x.shape[:-2], np.int32)
    for at in np.ndindex(x.shape[:-2]):
        rows = [[i, *row] for i, row in enumerate(x[at].tolist())]
        for k in range(len(rows)):
            best = max(range(k, len(rows)), key=lambda i: (abs(rows[i][k + 1]), -i))
            signs[at] *= 1 if best == k else -1
            rows[k], rows[best] = rows[best], rows[k]
            for row in rows[k + 1 :]:
                row[k + 1] /= rows[k][k + 1]
                row[k + 2 :] = [a - row[k + 1] * b for a, b in zip(row[k + 2 :], rows[k][k + 2 :])]
        if rows:
            y[at], order[at] = [row[1:] for row in rows], [row[0] for row in rows]
    return y, order, signs


def solved(t: np.ndarray, b: np.ndarray, upper: bool, transposed: bool, unit: bool) -> np.ndarray:
    kept = np.triu(t) if upper else np.tril(t)
    if unit:
        kept = kept - kept * np.eye(t.shape[-1]) + np.eye(t.shape[-1])
    return np.linalg.solve(kept.swapaxes(-1, -2) if transposed else kept, b) if b.size else b


_FLAGS = ("upper", "transposed", "unit")

SAMPLES: dict[str, list[Sample]] = {
    "cholesky": [
        Sample([definite(*shape)], reference=root) for shape in ((3, 3), (2, 5, 5), (1, 1), (19, 19), (0, 4, 4), (0, 0))
    ],
    "lu": [
        Sample([regular(*shape)], reference=factors, outputs=(0,))
        for shape in ((3, 3), (2, 5, 5), (1, 1), (2, 2, 4, 4), (19, 19), (0, 3, 3), (0, 0))
    ],
    "triangular_solve": [
        Sample([regular_triangle, Spec(shape)], dict(zip(_FLAGS, flags)), reference=solved)
        for shape, flags in (
            ((3, 1), (False, False, False)),
            ((2, 4, 3), (True, False, False)),
            ((5, 20), (False, True, False)),
            ((4, 37), (True, True, False)),
            ((3, 2), (False, False, True)),
            ((3, 2), (True, False, True)),
            ((2, 3, 2), (False, True, True)),
            ((2, 19, 2), (True, True, True)),
            ((1, 1), (False, False, False)),
            ((3, 0), (False, False, False)),
        )
        for regular_triangle in [definite(*shape[:-1], shape[-2]) / shape[-2]]
    ],
}
