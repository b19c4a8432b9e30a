"""What reads images: the wrapper of classifiers, and ConvMixer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Image(nn.Module):
    """What reads bytes in rows of pixels. Its constants are in thousandths, so that they are exact in f64, too."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        for name, values in (("mean", [485.0, 456.0, 406.0]), ("std", [229.0, 224.0, 225.0])):
            self.register_buffer(name, torch.tensor(values).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        x = (image.permute(0, 3, 1, 2).to(self.mean.dtype) / 255 - self.mean / 1000) / (self.std / 1000)
        found: Tensor = self.inner(x.contiguous())
        return found


class ConvMixer(nn.Module):
    """ConvMixer-1536/20."""

    def __init__(self, d: int = 1536, depth: int = 20, k: int = 9) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, d, 7, 7), nn.BatchNorm2d(d)
        self.h = nn.ModuleList(
            nn.ModuleDict({
                "depthwise": nn.Conv2d(d, d, k, padding=k // 2, groups=d), "norm1": nn.BatchNorm2d(d),
                "pointwise": nn.Conv2d(d, d, 1), "norm2": nn.BatchNorm2d(d),
            })
            for _ in range(depth)
        )  # fmt: skip
        self.head = nn.Linear(d, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(F.gelu(self.patches(x)))
        for layer in self.h:
            x = x + layer["norm1"](F.gelu(layer["depthwise"](x)))
            x = layer["norm2"](F.gelu(layer["pointwise"](x)))
        found: Tensor = self.head(x.mean((2, 3)))
        return found
