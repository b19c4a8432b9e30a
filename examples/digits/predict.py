"""Use the trained LeNet from Python: the built artifact is a module.

python examples/digits/predict.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "build"))

import lenet  # noqa: E402  (build/lenet, made by `dslc train` or `dslc build`)


def main() -> None:
    with np.load(HERE / "digits.npz", allow_pickle=False) as data:
        images, labels = data["test_x"], data["test_y"]
    digits = lenet.predict(image=images).argmax(axis=1)
    print("predicted", digits[:16])
    print("written  ", labels[:16])
    print(f"right: {np.mean(digits == labels):.2%} of {len(labels)} test images")


if __name__ == "__main__":
    main()
