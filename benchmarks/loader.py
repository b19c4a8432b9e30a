"""How many images a second the loader gives: by format, augmentation and number of workers.

    python benchmarks/loader.py --workers 16 --json loader.json

Makes its own data in a temporary folder, which it removes: pictures with large and small structures, as photographs
have. Each batch is copied once more, as a GPU session copies it to pinned memory. Rows of ``case``: ``u8`` means that
the model normalizes (4 times fewer bytes), ``f32`` that ``data.augment`` does. Each rate is the best of ``--rounds``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dslc.runtime.artifact.interface import Dim, Interface, Tensor, Train
from dslc.runtime.data.augment.steps.colour import Colour
from dslc.runtime.data.augment.steps.flip import Flip
from dslc.runtime.data.augment.steps.normalize import Normalize
from dslc.runtime.data.augment.steps.randaugment import RandAugment
from dslc.runtime.data.augment.steps.resized_crop import ResizedCrop
from dslc.runtime.data.names import split
from dslc.runtime.data.pictures import PictureOptions, decoder
from dslc.runtime.data.source import Source
from dslc.runtime.train.data import Dataset
from dslc.runtime.train.open_dataset import DataSection

SIDE = 224
CROP = ResizedCrop()
FLIP = Flip(p=0.5)
NORMALIZE = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=255.0)
COLOUR = Colour(brightness=0.4, contrast=0.4, saturation=0.4)
RANDAUGMENT = RandAugment()


@dataclass(frozen=True)
class Case:
    """``data``: the name of a file in the folder; ``steps``: of ``data.augment``."""

    name: str
    data: str
    steps: tuple[Any, ...] = ()
    dtype: str = "u8"
    scaled: bool = False


CASES = (
    Case("npy, u8", "x.npy"),
    Case("npy, flip, normalize, f32", "x.npy", (FLIP, NORMALIZE), "f32"),
    Case("npy, resized crop, flip, u8", "x.npy", (CROP, FLIP)),
    Case("npy, resized crop, flip, normalize, f32", "x.npy", (CROP, FLIP, NORMALIZE), "f32"),
    Case("npz, resized crop, flip, u8", "x.npz:x", (CROP, FLIP)),
    Case("idx, resized crop, flip, u8", "x.idx", (CROP, FLIP)),
    Case("jpeg 224x224, u8", "224x224/:image"),
    Case("jpeg 224x224, resized crop, flip, u8", "224x224/:image", (CROP, FLIP)),
    Case("jpeg 500x375, u8", "500x375/:image"),
    Case("jpeg 500x375, resized crop, flip, u8", "500x375/:image", (CROP, FLIP)),
    Case("jpeg 500x375, resized crop, flip, normalize, f32", "500x375/:image", (CROP, FLIP, NORMALIZE), "f32"),
    Case("jpeg 500x375, resized crop, flip, colour, u8", "500x375/:image", (CROP, FLIP, COLOUR)),
    Case("jpeg 500x375, resized crop, flip, randaugment, u8", "500x375/:image", (CROP, FLIP, RANDAUGMENT)),
    Case("jpeg 2000x1500, resized crop, flip, u8", "2000x1500/:image", (CROP, FLIP)),
    Case("jpeg 2000x1500, resized crop, flip, u8, scaled", "2000x1500/:image", (CROP, FLIP), scaled=True),
)


def picture(width: int, height: int, seed: int) -> Any:
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 16, width // 16, 3), np.uint8))
    pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    return Image.fromarray((pixels + rng.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8))


def write_data(folder: Path, images: int, different: int) -> None:
    """The files of all cases; a JPEG folder has ``different`` files and links to them."""
    rows = np.stack([np.asarray(picture(SIDE, SIDE, seed)) for seed in range(different)])
    whole = np.concatenate([rows] * -(-images // different))[:images]
    np.save(folder / "x.npy", whole)
    np.savez(folder / "x.npz", x=whole)
    head = bytes((0, 0, 8, 4)) + b"".join(size.to_bytes(4, "big") for size in whole.shape)
    (folder / "x.idx").write_bytes(head + whole.tobytes())
    for width, height in ((224, 224), (500, 375), (2000, 1500)):
        names = folder / f"{width}x{height}"
        names.mkdir()
        for number in range(images):
            path = names / f"{number:06}.jpg"
            if number < different:
                picture(width, height, number).save(path, quality=90)
            else:
                os.link(names / f"{number % different:06}.jpg", path)


def opened(folder: Path, case: Case, batch: int) -> Dataset:
    path, key = split(str(folder / case.data))
    tensor = Tensor("image", case.dtype, ("B", SIDE, SIDE, 3))
    face = Interface("m", "M", (Dim("B", 1, batch, batch, True),), (tensor,), (), Train((), {}, 0.1, ()))
    return DataSection(
        {"image": Source(Path(path), key, case.data)},
        face,
        {"B": batch},
        "data.train",
        check_finite=True,
        notice=lambda text: None,
        training=True,
        augment={"image": case.steps} if case.steps else {},
        images=PictureOptions(scaled=case.scaled),
    ).open()


def rate(data: Dataset, batch: int, workers: int, seconds: float) -> float:
    """Images a second, after each worker has given a batch."""

    def tasks() -> Iterator[tuple[np.ndarray[Any, np.dtype[np.int64]], int]]:
        epoch = 0
        while True:
            order = data.order(1, epoch, shuffle=True)
            for start in range(0, len(order) - batch + 1, batch):
                yield order[start : start + batch], epoch
            epoch += 1

    feed = data.feed(tasks(), workers)
    try:
        pinned = next(feed)["image"].copy()
        for _ in range(1, workers):
            next(feed)
        count, start = 0, time.perf_counter()
        while (taken := time.perf_counter() - start) < seconds:
            np.copyto(pinned, next(feed)["image"])
            count += batch
        return count / taken
    finally:
        feed.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=1024, help="rows of each file or folder")
    parser.add_argument("--different", type=int, default=32, help="different pictures among them")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cases = [case for case in CASES if args.only in case.name]
    folder = Path(tempfile.mkdtemp(prefix="dslc-loader-"))
    try:
        write_data(folder, args.images, args.different)
        print(f"{platform.machine()}, {os.cpu_count()} CPUs, {decoder()}, batches of {args.batch}")
        found = measured(folder, cases, args.workers, args.batch, args.seconds, args.rounds)
    finally:
        shutil.rmtree(folder)
    if args.json is not None:
        args.json.write_text(json.dumps({"decoder": decoder(), "batch": args.batch, "images_per_s": found}, indent=1))


def measured(
    folder: Path, cases: Sequence[Case], workers: Sequence[int], batch: int, seconds: float, rounds: int
) -> dict[str, dict[int, float]]:
    """Prints a table of images a second, and returns it by case and number of workers."""
    print("| case | " + " | ".join(f"{count} workers" for count in workers) + " |")
    print("|---|" + "---|" * len(workers))
    found: dict[str, dict[int, float]] = {}
    for case in cases:
        data = opened(folder, case, batch)
        found[case.name] = {n: max(rate(data, batch, n, seconds) for _ in range(rounds)) for n in workers}
        print(f"| {case.name} | " + " | ".join(f"{found[case.name][n]:,.0f}" for n in workers) + " |", flush=True)
    return found


if __name__ == "__main__":
    main()
