"""The models of the zoo: file, arguments, sizes, inputs and the map of the twin's weights. Needs numpy alone.

Both sides read this table: ``ours.py`` with dslc, ``twin.py`` with PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import maps
import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: Of an input: its shape, whose names are dims; its dtype; and below what number integers are drawn.
Port = tuple[tuple[str | int, ...], str, int]
_IMAGE: Final[Port] = (("B", "S", "S", 3), "u8", 256)
_CLASS: Final[dict[str, Port]] = {"label": (("B",), "i32", 1000)}
_CROSS: Final = "cross_entropy(output, label)"
#: Both leave the first step's gradient in the state; weight decay of adamw is no part of it.
OPTIMIZERS: Final = {
    "sgd": "sgd(lr=1e-6, momentum=0.9)",
    "adamw": "adamw(lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01)",
}


@dataclass(frozen=True)
class Entry:
    """A model. ``file``: FILE:MODEL, from the root of the repository. ``args``: as for ``-D``; nothing is drawn at
    random. ``sizes``: those of a CPU; ``gpu``: those of a GPU that differ. ``gib``: about what either side needs of a
    GPU in bf16. ``labels``, ``loss`` and ``optimizer``: the train section. ``map``: as for ``weights.load``.
    """

    name: str
    paper: str
    file: str
    inputs: Mapping[str, Port]
    sizes: Mapping[str, int]
    gpu: Mapping[str, int]
    gib: float = 4.0
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Port] = field(default_factory=lambda: _CLASS)
    loss: str = _CROSS
    map: str | Mapping[str, Any] | None = None
    optimizer: str = "sgd"

    def on(self, device: str) -> Entry:
        """The entry whose ``sizes`` are those of this device, ``cpu`` or ``gpu``."""
        return dataclasses.replace(self, sizes={**self.sizes, **self.gpu}) if device == "gpu" else self

    def drawn(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs and labels, the same on both sides. Of texts with a mask, rows end one after the other."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        inputs, labels = (
            {n: self._one(rng, *port) for n, port in ports.items()} for ports in (self.inputs, self.labels)
        )
        if "mask" in inputs:
            count, length = inputs["mask"].shape
            ends = length - np.arange(count) * length // (2 * count)
            inputs["mask"] = (np.arange(length) < ends[:, None]).astype(np.int32)
            if "target" in labels and labels["target"].shape == inputs["mask"].shape:
                labels["target"] = np.where(inputs["mask"], labels["target"], -100).astype(np.int32)
        return inputs, labels

    def _one(self, rng: np.random.Generator, shape: tuple[str | int, ...], dtype: str, below: int) -> np.ndarray:
        sizes = [n if isinstance(n, int) else self.sizes[n] for n in shape]
        if dtype == "f32":
            return (
                rng.integers(0, 2, sizes).astype(np.float32) if below else rng.standard_normal(sizes).astype(np.float32)
            )
        return rng.integers(0, below, sizes).astype({"u8": np.uint8, "i32": np.int32}[dtype])


_TOKENS: Final = ("B", "T")


def _vision(name: str, paper: str, model: str, batch: int, gpu: int, gib: float, **args: str) -> Entry:
    """A classifier of images with a map that dslc ships."""
    family = model.partition(":")[0]
    sizes, map = {"B": batch, "S": 96}, f"torchvision/{family}"
    return Entry(
        name, paper, f"examples/models/{model}", {"image": _IMAGE}, sizes, {"B": gpu, "S": 224}, gib, args, map=map
    )


def _own(name: str, paper: str, model: str, batch: int, gpu: int, gib: float, map: Any, **sizes: int) -> Entry:
    """A classifier of images of this folder."""
    file, each = f"benchmarks/zoo/models/{model}", {"B": batch, "S": 96} | sizes
    return Entry(name, paper, file, {"image": _IMAGE}, each, {"B": gpu, "S": 224}, gib, map=map)


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
    _own("ShuffleNetV2", "Ma et al. 2018", "shufflenet:ShuffleNetV2", 8, 128, 3, maps.SHUFFLENET),
    _vision("EfficientNet-B0", "Tan and Le 2019", "efficientnet:EfficientNet", 4, 128, 9, skip="0", p="0"),
    _vision("ConvNeXt-T", "Liu et al. 2022", "convnext:ConvNeXt", 2, 64, 8, skip="0"),
    _vision("DenseNet-121", "Huang et al. 2016", "densenet:DenseNet", 4, 64, 9),
    Entry(
        "ViT-B/16", "Dosovitskiy et al. 2020", "examples/models/vit:ViT", {"image": (("B", 224, 224, 3), "u8", 256)},
        {"B": 2}, {"B": 64}, 7, map="torchvision/vit", optimizer="adamw",
    ),
    Entry(
        "BERT-base", "Devlin et al. 2018", "examples/models/bert:BertMasked", _BERT, {"B": 2, "T": 64},
        {"B": 32, "T": 128}, 5, {"p": "0"}, {"target": (_TOKENS, "i32", 30_522)},
        "cross_entropy(output, target, ignore_index=-100)", "huggingface/bert_masked", "adamw",
    ),
    _text(
        "Llama 125M", "Touvron et al. 2023", "benchmarks/zoo/models/llama:Llama", 32_000, {"B": 1, "T": 128},
        {"B": 8, "T": 1024}, 9,
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
)  # fmt: skip
BY_NAME: Final = {entry.name: entry for entry in ENTRIES}
