"""Twins whose results have a class for each pixel: DeepLabV3, SegFormer, the U-Net of 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torchvision.models.segmentation as segmentation
import transformers
from torch import Tensor, nn


class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        found = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)
        self.backbone, self.classifier = found.backbone, found.classifier
        found.classifier[0].project[3].p = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.classifier(self.backbone(x)["out"]), x.shape[-2:], mode="bilinear")


class SegFormer(transformers.SegformerForSemanticSegmentation):
    """B2, as trained for ADE20K, at the size of the image."""

    def __init__(self) -> None:
        super().__init__(transformers.SegformerConfig(
            depths=[3, 4, 6, 3], hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=768, num_labels=150,
            drop_path_rate=0.0, classifier_dropout_prob=0.0,
        ))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(super().forward(pixel_values=x).logits, x.shape[-2:], mode="bilinear")


def _double(c: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"c1": nn.Conv2d(c, out, 3), "c2": nn.Conv2d(out, out, 3)})


def _through(layers: nn.ModuleDict, x: Tensor) -> Tensor:
    for each in layers.values():
        x = each(x).relu()
    return x


class UNet(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        sizes = [64 * 2**i for i in range(depth)]
        self.down = nn.ModuleList(
            nn.ModuleDict({"enc": _double(out // 2 if i else 1, out)}) for i, out in enumerate(sizes)
        )
        self.middle = _double(sizes[-1], 2 * sizes[-1])
        self.up = nn.ModuleList(
            nn.ModuleDict({"grow": nn.ConvTranspose2d(2 * out, out, 2, 2), "dec": _double(2 * out, out)})
            for out in reversed(sizes)
        )
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        x, kept = image, []
        for stage in self.down:
            x = _through(stage["enc"], x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = _through(self.middle, x)
        for stage in self.up:
            x, wide = stage["grow"](x), kept.pop()
            at, size = (wide.shape[2] - x.shape[2]) // 2, x.shape[2]
            x = _through(stage["dec"], torch.cat([wide[:, :, at : at + size, at : at + size], x], 1))
        found: Tensor = self.head(x)
        return found
