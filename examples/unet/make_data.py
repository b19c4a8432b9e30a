"""Draw ``data/shapes.npz``: circles, rectangles and triangles on a noisy background, and which pixel is which.

    python examples/unet/make_data.py [TRAIN_IMAGES [TEST_IMAGES]]

Images are f32 [N, 1, 32, 32], masks i32 [N, 32, 32] with 0 background, 1 circle, 2 rectangle, 3 triangle. Everything
is drawn from one seed: the same numbers give the same images.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SIZE = 32
SEED = 0
NOISE = 0.1  # standard deviation of each pixel's noise
CONTRAST = 0.25  # least difference of a shape's grey from the background's
OUT = Path(__file__).resolve().parent / "data" / "shapes.npz"


def circle(y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    return np.hypot(y, x) < radius


def rectangle(y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    return (np.abs(y) < 0.8 * radius) & (np.abs(x) < radius)


def triangle(y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    """Upright and with equal sides: its corners lie on the circle of that radius."""
    return (y < radius / 2) & (np.sqrt(3) * np.abs(x) - y < radius)


SHAPES = (circle, rectangle, triangle)


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One image with one to three shapes, later ones in front, and its mask."""
    background = rng.uniform(0.2, 0.8)
    image = np.full((SIZE, SIZE), background)
    mask = np.zeros((SIZE, SIZE), np.int32)
    for _ in range(rng.integers(1, 4)):
        kind = int(rng.integers(len(SHAPES)))
        y, x = np.mgrid[:SIZE, :SIZE] - rng.uniform(6, SIZE - 6, (2, 1, 1))  # from the middle of the shape
        inside = SHAPES[kind](y, x, rng.uniform(5, 9))
        grey = rng.uniform(0, 1 - 2 * CONTRAST)  # of 0..1 without the greys too near to the background
        image[inside] = grey if grey < background - CONTRAST else grey + 2 * CONTRAST
        mask[inside] = 1 + kind
    return (image + rng.normal(0, NOISE, image.shape)).astype(np.float32), mask


def main(train: int = 1600, test: int = 320) -> None:
    rng = np.random.default_rng(SEED)
    drawn = [draw(rng) for _ in range(train + test)]
    images = np.stack([image for image, _ in drawn])[:, None]
    masks = np.stack([mask for _, mask in drawn])
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUT, train_x=images[:train], train_y=masks[:train], test_x=images[train:], test_y=masks[train:])
    print(f"{OUT}: {train} + {test} images; {np.mean(masks[train:] == 0):.1%} of the test pixels are background")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
