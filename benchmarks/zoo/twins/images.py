"""Twins that read images."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Image(nn.Module):
    """A classifier of bytes in rows of pixels."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        for name, values in (("mean", [0.485, 0.456, 0.406]), ("std", [0.229, 0.224, 0.225])):
            self.register_buffer(name, torch.tensor(values).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        x = (image.permute(0, 3, 1, 2).to(self.mean.dtype) / 255 - self.mean) / self.std
        found: Tensor = self.inner(x.contiguous())
        return found
