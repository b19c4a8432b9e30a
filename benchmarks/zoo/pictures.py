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
    Entry(
        "DiT-B/2", "Peebles and Xie 2023", f"{_FILES}dit:DiT",
        {"z": (("B", 4, "S", "S"), "f32", 0), "at": (("B",), "i32", 1000), "label": (("B",), "i32", 1000)},
        {"B": 2, "S": 16, "layers": 4}, {"B": 32, "S": 32, "layers": 12}, 10, {},
        {"wanted": (("B", 8, "S", "S"), "f32", 0)}, "mse(output, wanted)", None, "adamw", ("S", "layers"),
    ),
    Entry(
        "StyleGAN2", "Karras et al. 2020", f"{_FILES}stylegan2:StyleGAN2",
        {"real": (("B", 3, "S", "S"), "f32", 0), "z": (("B", 512), "f32", 0)}, {"B": 4, "S": 32, "base": 1024},
        {"B": 16, "S": 256, "base": 16_384}, 12, {"noise": "false"}, {}, optimizer="adam", fixed=("S", "base"),
        result="fake", predictor=("Generator", "z", {"judge.*": None}), steps={
            "critic": ("judge", "mean(softplus(-on_real)) + mean(softplus(on_copy))"),
            "generator": ("make", "mean(softplus(-on_fake))"),
        },
    ),
    Entry(
        "CycleGAN generator", "Zhu et al. 2017", f"{_FILES}cyclegan:CycleGAN",
        {"image": (("B", 3, "S", "S"), "f32", 0)}, {"B": 1, "S": 64, "width": 32, "count": 3},
        {"B": 4, "S": 256, "width": 64, "count": 9}, 6, {},
        {"wanted": (("B", 3, "S", "S"), "f32", 0)}, "mse(output, wanted)", None, "adam", ("S", "width", "count"),
    ),
    Entry(
        "DETR", "Carion et al. 2020", f"{_FILES}detr:DETR", {"image": (("B", "height", "width", 3), "u8", 256)},
        {"B": 1, "height": 96, "width": 128, "layers": 2}, {"B": 4, "height": 800, "width": 1066, "layers": 6}, 12,
        {"p": "0"}, {"kind": (("B", 100), "i32", 92), "box": (("B", 100, 4), "f32", 0)},
        "set_loss(logits, boxes, kind, sigmoid(box))", None, "adamw", ("height", "width", "layers"), result="logits",
    ),
    Entry(
        "SwinIR", "Liang et al. 2021", f"{_FILES}swinir:SwinIR", {"image": (("B", 3, "S", "S"), "f32", 0)},
        {"B": 1, "S": 16, "groups": 2, "layers": 2, "large": 32},
        {"B": 8, "S": 64, "groups": 6, "layers": 6, "large": 128}, 20, {},
        {"wanted": (("B", 3, "large", "large"), "f32", 0)}, "mse(output, wanted)", None, "adam",
        ("S", "groups", "layers", "large"),
    ),
    Entry(
        "VQ-VAE", "van den Oord et al. 2017", f"{_FILES}vqvae:VQVAE", {"image": (("B", 3, "S", "S"), "f32", 0)},
        {"B": 2, "S": 32}, {"B": 32, "S": 128}, 5, {}, {},
        "mse(copy, image) + mse(stop_gradient(z), e) + 0.25 * mse(z, stop_gradient(e))", None, "adam", ("S",),
        result="copy",
    ),
    Entry(
        "MLP-Mixer-B/16", "Tolstikhin et al. 2021", f"{_FILES}mixer:Mixer", {"image": IMAGE},
        {"B": 2, "S": 96, "layers": 4}, {"B": 64, "S": 224, "layers": 12}, 8, fixed=("S", "layers"),
    ),
    Entry(
        "XCiT-S12/16", "El-Nouby et al. 2021", f"{_FILES}xcit:XCiT", {"image": IMAGE},
        {"B": 2, "S": 96, "layers": 4}, {"B": 64, "S": 224, "layers": 12}, 10, optimizer="adamw",
        fixed=("S", "layers"),
    ),
    Entry(
        "Video Swin-T", "Liu et al. 2021", f"{_FILES}videoswin:VideoSwin",
        {"clip": (("B", 3, "frames", 224, 224), "f32", 0)}, {"B": 1, "frames": 8, "t": 2},
        {"B": 4, "frames": 32, "t": 8}, 16, {}, {"label": (("B",), "i32", 400)}, CROSS, maps.VIDEOSWIN, "adamw",
        ("frames", "t"),
    ),
    Entry(
        "Stable Diffusion v1", "Rombach et al. 2022", f"{_FILES}stablediffusion:StableDiffusion",
        {"z": (("B", 4, "S", "S"), "f32", 0), "at": (("B",), "i32", 1000), "text": (("B", "words", 768), "f32", 0)},
        {"B": 1, "S": 16, "words": 16, "width": 64, "units": 1},
        {"B": 8, "S": 64, "words": 77, "width": 320, "units": 2}, 40, {}, {"noise": (("B", 4, "S", "S"), "f32", 0)},
        "mse(output, noise)", None, "adamw", ("S", "words", "width", "units"),
    ),
    Entry(
        "CapsNet", "Sabour et al. 2017", f"{_FILES}capsnet:CapsNet",
        {"image": (("B", 1, 28, 28), "f32", 0), "kind": (("B",), "i32", 10)}, {"B": 8}, {"B": 128}, 4, {}, {},
        "margin_loss(lengths, copy, image, kind)", None, "adam", result="lengths",
    ),
)  # fmt: skip
