"""Twins that make images, volumes and sound: DDPM's U-Net, 3-D U-Net, WaveNet, DCGAN."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, c: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, c, 1e-6), nn.Conv2d(c, out, 3, padding=1)
        self.time, self.norm2 = nn.Linear(time, out), nn.GroupNorm(32, out, 1e-6)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(c, out, 1) if c != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        found: Tensor = self.conv2(F.silu(self.norm2(y))) + self.skip(x)
        return found


class PixelAttention(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, c, 1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).flatten(2).mT[:, None]
        y = self.o(F.scaled_dot_product_attention(self.q(y), self.k(y), self.v(y)))
        return x + y[:, 0].mT.reshape(x.shape)


class DDPM(nn.Module):
    def __init__(self, c: int = 128) -> None:
        super().__init__()
        self.c, time = c, 4 * c
        self.time1, self.time2 = nn.Linear(c, time), nn.Linear(time, time)
        self.first = nn.Conv2d(3, c, 3, padding=1)
        self.down, self.up, now = nn.ModuleList(), nn.ModuleList(), c
        kept = [c]
        for at, (factor, attends) in enumerate(((1, False), (2, True), (2, False), (2, False))):
            stage = nn.ModuleDict({"unit": nn.ModuleList()})
            for _ in range(2):
                stage["unit"].append(self._unit(now, factor * c, time, attends))
                now = factor * c
                kept.append(now)
            if at < 3:
                stage["shrink"] = nn.Conv2d(now, now, 3, stride=2)
                kept.append(now)
            self.down.append(stage)
        self.middle1, self.middle, self.middle2 = (
            Residual(now, now, time),
            PixelAttention(now),
            Residual(now, now, time),
        )
        for factor, attends, grows in ((2, False, True), (2, False, True), (2, True, True), (1, False, False)):
            stage = nn.ModuleDict({"unit": nn.ModuleList()})
            for _ in range(3):
                stage["unit"].append(self._unit(now + kept.pop(), factor * c, time, attends))
                now = factor * c
            if grows:
                stage["grow"] = nn.Conv2d(now, now, 3, padding=1)
            self.up.append(stage)
        self.norm, self.last = nn.GroupNorm(32, now, 1e-6), nn.Conv2d(now, 3, 3, padding=1)

    def _unit(self, c: int, out: int, time: int, attends: bool) -> nn.ModuleDict:
        more = {"attn": PixelAttention(out)} if attends else {}
        return nn.ModuleDict({"res": Residual(c, out, time), **more})

    def forward(self, image: Tensor, at: Tensor) -> Tensor:
        half = self.c // 2
        slope = torch.exp(torch.arange(half, device=image.device, dtype=image.dtype) * (-math.log(10000) / (half - 1)))
        angle = at[:, None] * slope
        time = self.time2(F.silu(self.time1(torch.cat([angle.sin(), angle.cos()], 1))))
        x = self.first(image)
        kept = [x]
        for stage in self.down:
            for unit in stage["unit"]:
                x = self._through(unit, x, time)
                kept.append(x)
            if "shrink" in stage:
                x = stage["shrink"](F.pad(x, (0, 1, 0, 1)))
                kept.append(x)
        x = self.middle2(self.middle(self.middle1(x, time)), time)
        for stage in self.up:
            for unit in stage["unit"]:
                x = self._through(unit, torch.cat([x, kept.pop()], 1), time)
            if "grow" in stage:
                x = stage["grow"](F.interpolate(x, scale_factor=2.0))
        found: Tensor = self.last(F.silu(self.norm(x)))
        return found

    def _through(self, unit: nn.ModuleDict, x: Tensor, time: Tensor) -> Tensor:
        x = unit["res"](x, time)
        return unit["attn"](x) if "attn" in unit else x


def _double(c: int, half: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({
        "c1": nn.Conv3d(c, half, 3, padding=1, bias=False), "n1": nn.BatchNorm3d(half), "r1": nn.ReLU(),
        "c2": nn.Conv3d(half, out, 3, padding=1, bias=False), "n2": nn.BatchNorm3d(out), "r2": nn.ReLU(),
    })  # fmt: skip


def _through(layers: nn.ModuleDict, x: Tensor) -> Tensor:
    for layer in layers.values():
        x = layer(x)
    return x


class UNet3D(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.down, self.up, now = nn.ModuleList(), nn.ModuleList(), 1
        for i in range(3):
            self.down.append(nn.ModuleDict({"enc": _double(now, 32 * 2**i, 64 * 2**i)}))
            now = 64 * 2**i
        self.middle, now = _double(now, 256, 512), 512
        for j in (2, 1, 0):
            out = 64 * 2**j
            grow = nn.ConvTranspose3d(now, 2 * out, 2, stride=2)
            self.up.append(nn.ModuleDict({"grow": grow, "dec": _double(3 * out, out, out)}))
            now = out
        self.head = nn.Conv3d(now, classes, 1)

    def forward(self, volume: Tensor) -> Tensor:
        x, kept = volume, []
        for stage in self.down:
            x = _through(stage["enc"], x)
            kept.append(x)
            x = F.max_pool3d(x, 2)
        x = _through(self.middle, x)
        for stage in self.up:
            x = _through(stage["dec"], torch.cat([kept.pop(), stage["grow"](x)], 1))
        found: Tensor = self.head(x)
        return found


class Gated(nn.Module):
    def __init__(self, c: int, gap: int, wide: int, last: bool) -> None:
        super().__init__()
        self.gap = gap
        self.filter, self.gate = (nn.Conv1d(c, c, 2, dilation=gap) for _ in range(2))
        self.line = None if last else nn.Conv1d(c, c, 1)
        self.skip = nn.Conv1d(c, wide, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = F.pad(x, (self.gap, 0))
        y = self.filter(z).tanh() * self.gate(z).sigmoid()
        return x if self.line is None else x + self.line(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, c: int = 64, wide: int = 256) -> None:
        super().__init__()
        self.levels = nn.Embedding(256, c)
        self.cycle = nn.ModuleList()
        for k in range(3):
            layers = (nn.ModuleDict({"gated": Gated(c, 2**i, wide, (k, i) == (2, 9))}) for i in range(10))
            self.cycle.append(nn.ModuleDict({"layer": nn.ModuleList(layers)}))
        self.head1, self.head2 = nn.Conv1d(wide, wide, 1), nn.Conv1d(wide, 256, 1)

    def forward(self, sound: Tensor) -> Tensor:
        x, total = self.levels(sound).mT, None
        for cycle in self.cycle:
            for layer in cycle["layer"]:
                x, skip = layer["gated"](x)
                total = skip if total is None else total + skip
        assert total is not None
        found: Tensor = self.head2(self.head1(total.relu()).relu())
        return found


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.ConvTranspose2d(100, 1024, 4, bias=False), nn.BatchNorm2d(1024)
        self.stage = nn.ModuleList()
        for i in range(3):
            grow = nn.ConvTranspose2d(1024 >> i, 512 >> i, 4, 2, 1, bias=False)
            inner = nn.ModuleDict({"conv_transpose": grow, "batchnorm": nn.BatchNorm2d(512 >> i)})
            self.stage.append(nn.ModuleDict({"grown": inner}))
        self.last = nn.ConvTranspose2d(128, 3, 4, 2, 1, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        x = self.norm(self.first(z[:, :, None, None])).relu()
        for stage in self.stage:
            x = _through(stage["grown"], x).relu()
        found: Tensor = self.last(x).tanh()
        return found


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 128, 4, 2, 1, bias=False)
        self.stage = nn.ModuleList()
        for i in range(3):
            conv = nn.Conv2d(128 << i, 256 << i, 4, 2, 1, bias=False)
            self.stage.append(nn.ModuleDict({"conv": conv, "norm": nn.BatchNorm2d(256 << i)}))
        self.last = nn.Conv2d(1024, 1, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.first(x), 0.2)
        for stage in self.stage:
            x = F.leaky_relu(_through(stage, x), 0.2)
        found: Tensor = self.last(x).flatten()
        return found


class DCGAN(nn.Module):
    """``parts``: the losses of a step in order, each with the layer whose parameters it trains."""

    parts = (("judge", "critic_loss"), ("make", "generator_loss"))

    def __init__(self) -> None:
        super().__init__()
        self.judge, self.make = Critic(), Generator()

    def forward(self, z: Tensor, real: Tensor | None = None) -> Tensor:
        found: Tensor = self.make(z)
        return found

    def critic_loss(self, real: Tensor, z: Tensor) -> Tensor:
        fake = self.make(z).detach()
        return F.softplus(-self.judge(real).float()).mean() + F.softplus(self.judge(fake).float()).mean()

    def generator_loss(self, real: Tensor, z: Tensor) -> Tensor:
        return F.softplus(-self.judge(self.make(z)).float()).mean()
