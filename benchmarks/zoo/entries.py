"""The models of the zoo: file, arguments, sizes, inputs and the map of the twin's weights. Needs numpy alone.

Both sides read this table: ``compare.py`` with dslc, ``twins.py`` with PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

import numpy as np

#: Of an input: its shape, whose names are dims; its dtype; and below what number integers are drawn.
Port = tuple[tuple[str | int, ...], str, int]
_IMAGE: Final[Port] = (("B", "S", "S", 3), "u8", 256)
_CLASS: Final[dict[str, Port]] = {"label": (("B",), "i32", 1000)}
_CROSS: Final = "cross_entropy(output, label)"


@dataclass(frozen=True)
class Entry:
    """A model. ``file``: FILE:MODEL, from the root of the repository. ``args``: as for ``-D``; nothing is drawn at
    random. ``sizes``: those of a CPU. ``labels`` and ``loss``: the train section. ``map``: as for ``weights.load``.
    """

    name: str
    paper: str
    file: str
    inputs: Mapping[str, Port]
    sizes: Mapping[str, int]
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Port] = field(default_factory=lambda: _CLASS)
    loss: str = _CROSS
    map: str | Mapping[str, Any] | None = None

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
            labels["target"] = np.where(inputs["mask"], labels["target"], -100).astype(np.int32)
        return inputs, labels

    def _one(self, rng: np.random.Generator, shape: tuple[str | int, ...], dtype: str, below: int) -> np.ndarray:
        sizes = [n if isinstance(n, int) else self.sizes[n] for n in shape]
        if dtype == "f32":
            return (
                rng.integers(0, 2, sizes).astype(np.float32) if below else rng.standard_normal(sizes).astype(np.float32)
            )
        return rng.integers(0, below, sizes).astype({"u8": np.uint8, "i32": np.int32}[dtype])


def _vision(name: str, paper: str, model: str, batch: int, **args: str) -> Entry:
    family = model.partition(":")[0]
    sizes = {"B": batch, "S": 96}
    file, map = f"examples/models/{model}", f"torchvision/{family}"
    return Entry(name, paper, file, {"image": _IMAGE}, sizes, args, map=map)


_TOKENS: Final = ("B", "T")
_UNITS: Final = "{i:1|2|3|4|5|6|7}", "units.{i:0|1|2|3|4|5|6}.unit"
_CONV: Final = {"0|1": "narrow", "3|4": "depthwise", "5|6": "wide"}  # of a branch
_SHUFFLENET: Final = {
    "{m:conv1|conv5}.{n:0|1}": "{m:stem|last}.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:0|1}": "stage.{k-2}.down.left_depthwise.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:2|3}": "stage.{k-2}.down.left.{n:conv|batchnorm}",
    "fc": "head",
    **{
        f"stage{{k}}.{old}.branch2.{{n:{at}}}": f"stage.{{k-2}}.{new}.right.{part}.{{n:conv|batchnorm}}"
        for old, new in (("0", "down"), _UNITS)
        for at, part in _CONV.items()
    },
}
_BERT: Final[dict[str, Port]] = {
    "ids": (_TOKENS, "i32", 30_522), "mask": (_TOKENS, "i32", 2), "segment": (_TOKENS, "i32", 2)
}  # fmt: skip

ENTRIES: Final = (
    _vision("MobileNetV2", "Sandler et al. 2018", "mobilenet:MobileNetV2", 8, p="0"),
    Entry(
        "ShuffleNetV2", "Ma et al. 2018", "benchmarks/zoo/models/shufflenet:ShuffleNetV2", {"image": _IMAGE},
        {"B": 8, "S": 96}, map=_SHUFFLENET,
    ),
    _vision("EfficientNet-B0", "Tan and Le 2019", "efficientnet:EfficientNet", 4, skip="0", p="0"),
    _vision("ConvNeXt-T", "Liu et al. 2022", "convnext:ConvNeXt", 2, skip="0"),
    _vision("DenseNet-121", "Huang et al. 2016", "densenet:DenseNet", 4),
    Entry(
        "ViT-B/16", "Dosovitskiy et al. 2020", "examples/models/vit:ViT", {"image": (("B", 224, 224, 3), "u8", 256)},
        {"B": 2}, map="torchvision/vit",
    ),
    Entry(
        "BERT-base", "Devlin et al. 2018", "examples/models/bert:BertMasked", _BERT, {"B": 2, "T": 64}, {"p": "0"},
        {"target": (_TOKENS, "i32", 30_522)}, "cross_entropy(output, target, ignore_index=-100)",
        "huggingface/bert_masked",
    ),
    Entry(
        "Llama 125M", "Touvron et al. 2023", "benchmarks/zoo/models/llama:Llama", {"ids": (_TOKENS, "i32", 32_000)},
        {"B": 1, "T": 128}, {}, {"target": (_TOKENS, "i32", 32_000)}, "cross_entropy(output, target)",
    ),
    Entry(
        "DLRM", "Naumov et al. 2019", "benchmarks/zoo/models/dlrm:DLRM",
        {"dense": (("B", 13), "f32", 0), "ids": (("B", 26), "i32", 10_000)}, {"B": 256}, {"rows": "10_000"},
        {"label": (("B",), "f32", 2)}, "bce_with_logits(output, label)",
    ),
    Entry(
        "PointNet", "Qi et al. 2017", "benchmarks/zoo/models/pointnet:PointNet", {"points": (("B", 3, "N"), "f32", 0)},
        {"B": 4, "N": 512}, {"p": "0"}, {"label": (("B",), "i32", 40)},
    ),
)  # fmt: skip
