"""Segment test images with the trained U-Net and draw them: image, truth, prediction, side by side, one in each row.

    python examples/unet/predict.py [PICTURE]

PICTURE is ``shapes.png`` by default. PNG needs pillow; a name that ends in .ppm does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "build"))

import unet  # noqa: E402  (build/unet, made by `dslc train` or `dslc build`)

COLOURS = np.array([[32, 32, 32], [230, 85, 60], [60, 140, 230], [245, 200, 60]], np.uint8)
SHOWN = 8  # images
ZOOM = 4  # pixels of the picture for one of an image
GAP = 8


def panel(rgb: np.ndarray) -> np.ndarray:
    """One image, u8 [H, W, 3], enlarged and with a white margin on the right and below."""
    large = rgb.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)
    return np.pad(large, ((0, GAP), (0, GAP), (0, 0)), constant_values=255)


def save(path: Path, picture: np.ndarray) -> None:
    """Write u8 [H, W, 3] as a portable pixmap, or through pillow in the format that the name says."""
    if path.suffix == ".ppm":
        height, width, _ = picture.shape
        path.write_bytes(f"P6 {width} {height} 255\n".encode() + picture.tobytes())
        return
    try:
        from PIL import Image
    except ImportError:
        sys.exit(f"{path}: this format needs pillow (pip install pillow); {path.stem}.ppm needs nothing")
    Image.fromarray(picture).save(path)


def main(path: Path) -> None:
    with np.load(HERE / "data" / "shapes.npz", allow_pickle=False) as data:
        images, truth = data["test_x"], data["test_y"]
    found = unet.predict(image=images).argmax(axis=1)
    grey = np.clip(images[:, 0, :, :, None] * 255, 0, 255).astype(np.uint8).repeat(3, axis=3)
    rows = [
        np.hstack([panel(grey[i]), panel(COLOURS[truth[i]]), panel(COLOURS[found[i]])])
        for i in range(min(SHOWN, len(images)))
    ]
    save(path, np.vstack(rows))
    print(f"{path}: image, truth, prediction of {len(rows)} test images")
    print(f"right: {np.mean(found == truth):.2%} of the pixels of {len(images)} test images")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "shapes.png"))
