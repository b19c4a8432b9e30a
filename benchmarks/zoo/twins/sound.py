"""Twins that make sound: HiFi-GAN's generator."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


def _normed(c: int, out: int, k: int, d: int = 1) -> nn.Module:
    return weight_norm(nn.Conv1d(c, out, k, dilation=d, padding=(k - 1) // 2 * d))


class _Residual(nn.Module):
    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.step = nn.ModuleList(nn.ModuleDict({"a": _normed(c, c, k, d), "b": _normed(c, c, k)}) for d in (1, 3, 5))

    def forward(self, x: Tensor) -> Tensor:
        for step in self.step:
            x = x + step["b"](F.leaky_relu(step["a"](F.leaky_relu(x, 0.1)), 0.1))
        return x


class HiFiGAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = _normed(80, 512, 7), _normed(32, 1, 7)
        self.stage = nn.ModuleList(
            nn.ModuleDict({
                "grow": weight_norm(nn.ConvTranspose1d(2 * c, c, k, s, (k - s) // 2)),
                "width": nn.ModuleList(nn.ModuleDict({"res": _Residual(c, wide)}) for wide in (3, 7, 11)),
            })
            for c, s, k in ((256, 8, 16), (128, 8, 16), (64, 2, 4), (32, 2, 4))
        )  # fmt: skip

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for stage in self.stage:
            x = stage["grow"](F.leaky_relu(x, 0.1))
            one, two, three = (each["res"](x) for each in stage["width"])
            x = (one + two + three) / 3
        return self.last(F.leaky_relu(x)).tanh().unflatten(2, (-1, 256))[:, 0]
