"""Published models and their counterparts in examples/models: file, arguments, map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Case:
    """``name``: of the original. ``model``: FILE:MODEL in examples/models, without `.nn`. ``args``: as for ``-D``."""

    name: str
    model: str
    map: str
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.model.partition(":")[0]


def _vision(family: str, model: str, **named: dict[str, str]) -> list[Case]:
    return [Case(name, model, f"torchvision/{family}", args) for name, args in named.items()]


def _vgg(depth: int) -> list[Case]:
    args = {"depth": str(depth)}
    return [
        Case(f"vgg{depth}", "vgg:VGG", "torchvision/vgg", args),
        Case(f"vgg{depth}_bn", "vgg:VGG", "torchvision/vgg", {**args, "bn": "true"}),
    ]


_CLASSES: Final = {"classes": "10"}
_TINY: Final = {"layers": "2", "heads": "2", "d": "32"}
_LARGE: Final = {"layers": "24", "heads": "16", "d": "1024"}

#: Published sizes whose weights' names and shapes are recorded in tests/published, one file for each family.
PUBLISHED: Final = (
    *_vision("resnet", "resnet:ResNet", **{f"resnet{n}": {"depth": str(n)} for n in (18, 50, 101)}),
    *(case for depth in (11, 13, 16, 19) for case in _vgg(depth)),
    *_vision("mobilenet", "mobilenet:MobileNetV2", mobilenet_v2={}),
    *_vision(
        "mobilenet", "mobilenet:MobileNetV3", mobilenet_v3_small={"size": "small"}, mobilenet_v3_large={"size": "large"}
    ),
    *_vision("efficientnet", "efficientnet:EfficientNet", **{f"efficientnet_b{b}": {"b": str(b)} for b in (0, 3)}),
    *_vision("densenet", "densenet:DenseNet", **{f"densenet{n}": {"depth": str(n)} for n in (121, 161)}),
    *_vision("convnext", "convnext:ConvNeXt", **{f"convnext_{s}": {"size": s} for s in ("tiny", "base")}),
    *_vision("vit", "vit:ViT", vit_b_16={}, vit_b_32={"patch": "32"}, vit_l_16=_LARGE),
    *_vision("swin", "swin:Swin", **{f"swin_{s}": {"size": s} for s in "tb"}),
    Case("bert-base", "bert:Bert", "huggingface/bert"),
    Case("bert-large", "bert:Bert", "huggingface/bert", _LARGE),
    Case("bert-base-classifier", "bert:BertClassifier", "huggingface/bert"),
    Case("bert-base-masked", "bert:BertMasked", "huggingface/bert_masked"),
    Case("gpt2", "gpt2:GPT2", "huggingface/gpt2"),
    Case("gpt2-medium", "gpt2:GPT2", "huggingface/gpt2", _LARGE),
)

#: Models whose predictions are recorded in tests/published: small sizes of each family, or tiny configurations.
SMALL: Final = (
    *_vision("resnet", "resnet:ResNet", **{f"resnet{n}": {"depth": str(n), **_CLASSES} for n in (18, 50)}),
    Case("vgg11_bn", "vgg:VGG", "torchvision/vgg", {"depth": "11", "bn": "true", **_CLASSES}),
    *_vision("mobilenet", "mobilenet:MobileNetV2", mobilenet_v2=_CLASSES),
    *_vision("mobilenet", "mobilenet:MobileNetV3", mobilenet_v3_small={"size": "small", **_CLASSES}),
    *_vision("efficientnet", "efficientnet:EfficientNet", efficientnet_b0=_CLASSES),
    *_vision("efficientnet", "efficientnet:EfficientNet", efficientnet_b5={"b": "5", **_CLASSES}),
    *_vision("densenet", "densenet:DenseNet", densenet121=_CLASSES),
    *_vision("convnext", "convnext:ConvNeXt", convnext_tiny=_CLASSES),
    *_vision("vit", "vit:ViT", vit_tiny={"patch": "32", **_TINY, **_CLASSES}),
    *_vision("swin", "swin:Swin", swin_t=_CLASSES),
    Case("bert-tiny", "bert:Bert", "huggingface/bert", {"vocab": "50", **_TINY}),
    Case("bert-tiny-classifier", "bert:BertClassifier", "huggingface/bert", {"vocab": "50", **_TINY}),
    Case("bert-tiny-masked", "bert:BertMasked", "huggingface/bert_masked", {"vocab": "50", **_TINY}),
    Case("gpt2-tiny", "gpt2:GPT2", "huggingface/gpt2", {"vocab": "50", **_TINY}),
)
