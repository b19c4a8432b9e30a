"""Models of the zoo for images, a class for each pixel, videos, and sounds made from pictures of their frequencies."""

from __future__ import annotations

from typing import Final

import maps
from entry import CROSS, IMAGE, Entry

_FILES: Final = "benchmarks/zoo/models/pictures/"
_PIXELS: Final = "cross_entropy(output, label, axis=1)"

PICTURES: Final = (
    Entry(
        "EfficientNetV2-S", "Tan and Le 2021", f"{_FILES}efficientnetv2:EfficientNetV2", {"image": IMAGE},
        {"B": 3, "S": 64}, {"B": 32, "S": 300}, 11, {"p": "0"}, map=maps.EFFICIENTNETV2,
    ),
    Entry(
        "DeepLabV3", "Chen et al. 2017", f"{_FILES}deeplab:DeepLabV3", {"image": IMAGE}, {"B": 4, "S": 65},
        {"B": 8, "S": 513}, 12, {"p": "0"}, {"label": (("B", "S", "S"), "i32", 21)}, _PIXELS, maps.DEEPLAB,
    ),
    Entry(
        "SegFormer-B2", "Xie et al. 2021", f"{_FILES}segformer:SegFormer", {"image": IMAGE}, {"B": 2, "S": 64},
        {"B": 8, "S": 512}, 16, {"p": "0"}, {"label": (("B", "S", "S"), "i32", 150)}, _PIXELS, maps.SEGFORMER, "adamw",
        ("S",),
    ),
    Entry(
        "U-Net 2015", "Ronneberger et al. 2015", f"{_FILES}unet2015:UNet", {"image": (("B", 1, "n", "n"), "f32", 0)},
        {"B": 1, "n": 188, "m": 4}, {"B": 8, "n": 572, "m": 388}, 10, {}, {"label": (("B", "m", "m"), "i32", 2)},
        _PIXELS, None, "sgd", ("n", "m"),
    ),
    Entry(
        "R(2+1)D-18", "Tran et al. 2018", f"{_FILES}r2plus1d:R2Plus1D", {"clip": (("B", 3, "T", "S", "S"), "f32", 0)},
        {"B": 2, "T": 8, "S": 32}, {"B": 16, "T": 16, "S": 112}, 8, {}, {"label": (("B",), "i32", 400)}, CROSS,
        maps.R2PLUS1D, "sgd", ("T", "S"),
    ),
    Entry(
        "MaxViT-T", "Tu et al. 2022", f"{_FILES}maxvit:MaxViT", {"image": (("B", 224, 224, 3), "u8", 256)}, {"B": 2},
        {"B": 32}, 12, map=maps.MAXVIT, optimizer="adamw",
    ),
    Entry(
        "HiFi-GAN V1", "Kong et al. 2020", f"{_FILES}hifigan:HiFiGAN", {"mel": (("B", 80, "T"), "f32", 0)},
        {"B": 2, "T": 8}, {"B": 16, "T": 32}, 3, {}, {"wave": (("B", "T", 256), "f32", 0)}, "mse(output, wave)",
        maps.HIFIGAN, "adamw",
    ),
    Entry(
        "ConvMixer-1536/20", "Trockman and Kolter 2022", f"{_FILES}convmixer:ConvMixer", {"image": IMAGE},
        {"B": 2, "S": 28}, {"B": 32, "S": 224}, 20,
    ),
    Entry(
        "RAFT-small", "Teed and Deng 2020", f"{_FILES}raft:RAFT",
        {name: (("B", 3, "height", "width"), "f32", 0) for name in ("a", "b")},
        {"B": 1, "height": 128, "width": 160, "steps": 3}, {"B": 6, "height": 368, "width": 496, "steps": 12}, 12, {},
        {"flow": (("B", "steps", 2, "height", "width"), "f32", 0)}, "mse(output, flow)", maps.RAFT, "adamw",
        ("height", "width", "steps"),
    ),
)  # fmt: skip
