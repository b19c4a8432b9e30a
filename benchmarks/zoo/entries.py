"""The models of the zoo. Needs numpy alone.

Both sides read this table: ``ours.py`` with dslc, ``twin.py`` with PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

import maps
from entry import CROSS, CROSS_TARGET, IMAGE, OPTIMIZERS, ROOT, TOKENS, Entry, Port
from pictures import PICTURES
from science import SCIENCE
from sequences import SEQUENCES

__all__ = ["BY_NAME", "ENTRIES", "OPTIMIZERS", "ROOT", "TOKENS", "Entry", "Port", "chosen"]

_TOKENS: Final = ("B", "T")


def _vision(name: str, paper: str, model: str, batch: int, gpu: int, gib: float, **args: str) -> Entry:
    """A classifier of images with a map that dslc ships."""
    family = model.partition(":")[0]
    sizes, map = {"B": batch, "S": 96}, f"torchvision/{family}"
    return Entry(
        name, paper, f"examples/models/{model}", {"image": IMAGE}, sizes, {"B": gpu, "S": 224}, gib, args, map=map
    )


def _own(
    name: str, paper: str, model: str, batch: int, gpu: int, gib: float, map: Any, side: tuple[int, int] = (96, 224),
    **args: str,
) -> Entry:  # fmt: skip
    """A classifier of images of this folder. ``side``: of images, on a CPU and on a GPU."""
    file, sizes = f"benchmarks/zoo/models/{model}", {"B": batch, "S": side[0]}
    return Entry(name, paper, file, {"image": IMAGE}, sizes, {"B": gpu, "S": side[1]}, gib, args, map=map)


def _text(
    name: str, paper: str, model: str, words: int, sizes: Mapping[str, int], gpu: Mapping[str, int], gib: float,
    map: Any = None, **args: str,
) -> Entry:  # fmt: skip
    """A language model: the next word at each place."""
    ports: dict[str, Port] = {"ids": (_TOKENS, "i32", words)}
    target: dict[str, Port] = {"target": (_TOKENS, "i32", words)}
    return Entry(
        name, paper, model, ports, sizes, gpu, gib, args, target, "cross_entropy(output, target)", map, "adamw"
    )


_BERT: Final[dict[str, Port]] = {
    "ids": (_TOKENS, "i32", 30_522), "mask": (_TOKENS, "i32", 2), "segment": (_TOKENS, "i32", 2)
}  # fmt: skip

ENTRIES: Final = (
    _vision("MobileNetV2", "Sandler et al. 2018", "mobilenet:MobileNetV2", 8, 128, 6, p="0"),
    _vision("MobileNetV3", "Howard et al. 2019", "mobilenet:MobileNetV3", 8, 128, 5, p="0"),
    _own("ShuffleNetV2", "Ma et al. 2018", "shufflenet:ShuffleNetV2", 8, 128, 3, maps.SHUFFLENET),
    _vision("EfficientNet-B0", "Tan and Le 2019", "efficientnet:EfficientNet", 4, 128, 9, skip="0", p="0"),
    _own("RegNetY-1.6GF", "Radosavovic et al. 2020", "regnet:RegNetY", 4, 64, 5, maps.REGNET),
    _own("SqueezeNet", "Iandola et al. 2016", "squeezenet:SqueezeNet", 8, 128, 5, maps.SQUEEZENET, p="0"),
    _vision("ResNet-50", "He et al. 2015", "resnet:ResNet", 2, 128, 11),
    _vision("ResNet-152", "He et al. 2015", "resnet:ResNet", 2, 32, 8, depth="152"),
    _vision("ResNeXt-50", "Xie et al. 2016", "resnet:ResNet", 2, 64, 8, groups="32", width="4"),
    _vision("Wide ResNet-50", "Zagoruyko and Komodakis 2016", "resnet:ResNet", 2, 64, 8, width="128"),
    _own(
        "Inception-v3", "Szegedy et al. 2015", "inception:InceptionV3", 2, 64, 7, maps.INCEPTION, (128, 299), p="0"
    ),
    _vision("ConvNeXt-T", "Liu et al. 2022", "convnext:ConvNeXt", 2, 64, 8, skip="0"),
    _vision("DenseNet-121", "Huang et al. 2016", "densenet:DenseNet", 4, 64, 9),
    Entry(
        "ViT-B/16", "Dosovitskiy et al. 2020", "examples/models/vit:ViT", {"image": (("B", 224, 224, 3), "u8", 256)},
        {"B": 2}, {"B": 64}, 7, map="torchvision/vit", optimizer="adamw",
    ),
    Entry(
        "Swin-T", "Liu et al. 2021", "examples/models/swin:Swin", {"image": (("B", 224, 224, 3), "u8", 256)},
        {"B": 2}, {"B": 64}, 9, map="torchvision/swin", optimizer="adamw", args={"skip": "0"},
    ),
    Entry(
        "BERT-base", "Devlin et al. 2018", "examples/models/bert:BertMasked", _BERT, {"B": 2, "T": 64},
        {"B": 32, "T": 128}, 5, {"p": "0"}, {"target": (_TOKENS, "i32", 30_522)},
        "cross_entropy(output, target, ignore_index=-100)", "huggingface/bert_masked", "adamw",
    ),
    _text(
        "GPT-2 124M", "Radford et al. 2019", "examples/models/gpt2:GPT2", 50_257, {"B": 1, "T": 128},
        {"B": 16, "T": 1024}, 16, "huggingface/gpt2", p="0",
    ),
    _text(
        "Llama 125M", "Touvron et al. 2023", "benchmarks/zoo/models/llama:Llama", 32_000, {"B": 1, "T": 128},
        {"B": 8, "T": 1024}, 9,
    ),
    Entry(
        "Transformer", "Vaswani et al. 2017", "benchmarks/zoo/models/transformer:Transformer",
        {"source": (("B", "S"), "i32", 37_000), "mask": (("B", "S"), "i32", 2), "given": (_TOKENS, "i32", 37_000)},
        {"B": 2, "S": 32, "T": 32}, {"B": 64, "S": 64, "T": 64}, 6, {"p": "0"},
        {"target": (_TOKENS, "i32", 37_000)}, "cross_entropy(output, target)", None, "adamw",
    ),
    Entry(
        "MoE top-2", "Lepikhin et al. 2020", "benchmarks/zoo/models/moe:MoE", {"ids": (_TOKENS, "i32", 32_000)},
        {"B": 1, "T": 128, "room": 40}, {"B": 8, "T": 512, "room": 1280}, 5, {}, {"target": (_TOKENS, "i32", 32_000)},
        "cross_entropy(output, target)", None, "adamw", ("room",),
    ),
    Entry(
        "DDPM U-Net", "Ho et al. 2020", "benchmarks/zoo/models/diffusion:DDPM",
        {"image": (("B", 3, 32, 32), "f32", 0), "at": (("B",), "i32", 1000)}, {"B": 4}, {"B": 128}, 8, {"p": "0"},
        {"noise": (("B", 3, 32, 32), "f32", 0)}, "mse(output, noise)", None, "adamw",
    ),
    Entry(
        "3-D U-Net", "Cicek et al. 2016", "benchmarks/zoo/models/unet3d:UNet3D",
        {"volume": (("B", 1, "n", "n", "n"), "f32", 0)}, {"B": 1, "n": 32}, {"B": 2, "n": 96}, 8, {},
        {"label": (("B", "n", "n", "n"), "i32", 3)}, "cross_entropy(output, label, axis=1)", None, "sgd", ("n",),
    ),
    Entry(
        "WaveNet", "van den Oord et al. 2016", "benchmarks/zoo/models/wavenet:WaveNet",
        {"sound": (_TOKENS, "i32", 256)}, {"B": 1, "T": 2048}, {"B": 8, "T": 8192}, 9, {},
        {"target": (_TOKENS, "i32", 256)}, "cross_entropy(output, target, axis=1)", None, "adamw",
    ),
    Entry(
        "DCGAN", "Radford et al. 2015", "benchmarks/zoo/models/dcgan:DCGAN",
        {"real": (("B", 3, 64, 64), "f32", 0), "z": (("B", 100), "f32", 0)}, {"B": 8}, {"B": 128}, 3, {}, {},
        optimizer="adam", result="fake", predictor=("Generator", "z", {"judge.*": None}), steps={
            "critic": ("judge", "mean(softplus(-on_real)) + mean(softplus(on_copy))"),
            "generator": ("make", "mean(softplus(-on_fake))"),
        },
    ),
    Entry(
        "GCN", "Kipf and Welling 2016", "benchmarks/zoo/models/gcn:GCN",
        {"x": (("N", "features"), "f32", 0), "source": (("E",), "i32", "N"), "sink": (("E",), "i32", "N")},
        {"N": 2708, "E": 10_556, "features": 1433, "hidden": 16, "classes": 7},
        {"N": 169_343, "E": 1_166_243, "features": 128, "hidden": 256, "classes": 40}, 4, {"p": "0"},
        {"label": (("N",), "i32", "classes")}, CROSS, None, "adamw", ("features", "hidden", "classes"),
    ),
    Entry(
        "DLRM", "Naumov et al. 2019", "benchmarks/zoo/models/dlrm:DLRM",
        {"dense": (("B", 13), "f32", 0), "ids": (("B", 26), "i32", 10_000)}, {"B": 256}, {"B": 2048}, 1,
        {"rows": "10_000"}, {"label": (("B",), "f32", 2)}, "bce_with_logits(output, label)",
    ),
    Entry(
        "PointNet", "Qi et al. 2017", "benchmarks/zoo/models/pointnet:PointNet", {"points": (("B", 3, "N"), "f32", 0)},
        {"B": 4, "N": 512}, {"B": 32, "N": 1024}, 2, {"p": "0"}, {"label": (("B",), "i32", 40)},
    ),
    _text(
        "ModernBERT-base", "Warner et al. 2024", "benchmarks/zoo/models/modernbert:ModernBERT", 50_368,
        {"B": 1, "T": 128}, {"B": 16, "T": 1024}, 20,
    ),
    Entry(
        "JiT-B/16", "Li and He 2025", "benchmarks/zoo/models/jit:JiT",
        {"z": (("B", 3, "S", "S"), "f32", 0), "logit": (("B",), "f32", 0), "label": (("B",), "i32", 1000)},
        {"B": 1, "S": 96}, {"B": 32, "S": 256}, 12, {}, {"wanted": (("B", 3, "S", "S"), "f32", 0)},
        "mse(output, wanted)", None, "adamw", ("S",),
    ),
    Entry(
        "YOLOv12-S", "Tian et al. 2025", "benchmarks/zoo/models/yolo12:YOLOv12", {"image": IMAGE}, {"B": 2, "S": 96},
        {"B": 64, "S": 224}, 8, fixed=("S",),
    ),
    _text(
        "Gated attention 130M", "Qiu et al. 2025", "benchmarks/zoo/models/gated:GatedLM", 32_000, {"B": 1, "T": 128},
        {"B": 8, "T": 1024}, 10,
    ),
    Entry(
        "TabPFN v2", "Hollmann et al. 2025", "benchmarks/zoo/models/tabpfn:TabPFN",
        {"x": (("B", "R", "K"), "f32", 0), "y": (("B", "R"), "i32", 10)}, {"B": 1, "R": 48, "M": 16, "K": 6},
        {"B": 4, "R": 512, "M": 128, "K": 10}, 8, {}, {"target": (("B", "M"), "i32", 10)}, CROSS_TARGET, None, "adamw",
        ("R", "M", "K"),
    ),
    Entry(
        "TimeMixer", "Wang et al. 2024", "benchmarks/zoo/models/timemixer:TimeMixer",
        {"x": (("B", 96, "n"), "f32", 0)}, {"B": 8, "n": 21}, {"B": 128}, 3, {}, {"y": (("B", 96, "n"), "f32", 0)},
        "mse(output, y)", None, "adam", ("n",),
    ),
    *SEQUENCES,
    *PICTURES,
    *SCIENCE,
)  # fmt: skip
BY_NAME: Final = {entry.name: entry for entry in ENTRIES}


def chosen(asked: argparse.Namespace) -> Entry:
    """The entry of a process's arguments: ``name``, ``device`` or ``sizes``, ``entry``, and ``batch``."""
    entry = BY_NAME[asked.name].on(asked.sizes or asked.device)
    if asked.entry == "predict":
        return entry.predicting(asked.batch)
    return entry.of(B=asked.batch) if asked.batch else entry
