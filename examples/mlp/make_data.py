"""Make ``spirals.npz``: three spiral arms in the plane, 500 points each with some noise. Nothing is downloaded.

python examples/mlp/make_data.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

ARMS = 3
POINTS = 500
TEST_ROWS = 300


def main() -> None:
    rng = np.random.default_rng(0)
    radius = np.tile(np.linspace(0.05, 1.0, POINTS), ARMS)
    arm = np.repeat(np.arange(ARMS), POINTS)
    angle = 4.0 * radius + 2 * np.pi * arm / ARMS + rng.normal(0, 0.12, radius.shape)
    point = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    arm = arm.astype(np.int32)
    order = rng.permutation(len(point))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    np.savez_compressed(
        Path(__file__).resolve().parent / "spirals.npz",
        train_x=point[train],
        train_y=arm[train],
        test_x=point[test],
        test_y=arm[test],
    )


if __name__ == "__main__":
    main()
