"""Make ``digits.npz`` here and in ``../vae`` from scikit-learn's ``digits.csv.gz`` (see DATA.md).

    python examples/digits/make_data.py path/to/digits.csv.gz

Each line of the file is an 8x8 image, 64 values 0..16 in row-major order, and its digit. The images are divided by
16, enlarged to 28x28 by nearest neighbour (pixel i of 28 shows pixel i*8//28 of 8), and split by the permutation of
seed 0: the first 1,437 for training, the other 360 for testing. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
TRAIN_ROWS = 1437
HERE = Path(__file__).resolve().parent


def main(path: str) -> None:
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if digest != SHA256:
        sys.exit(f"{path}: SHA-256 is {digest}, expected {SHA256}")
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    small = table[:, :64].reshape(-1, 8, 8) / np.float32(16)
    near = np.arange(28) * 8 // 28
    images = small[:, near][:, :, near][:, None]
    labels = table[:, 64].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:TRAIN_ROWS], order[TRAIN_ROWS:]
    np.savez_compressed(
        HERE / "digits.npz",
        train_x=images[train],
        train_y=labels[train],
        test_x=images[test],
        test_y=labels[test],
    )
    flat = images.reshape(len(images), 784)
    np.savez_compressed(HERE.parent / "vae" / "digits.npz", train_x=flat[train], test_x=flat[test])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
