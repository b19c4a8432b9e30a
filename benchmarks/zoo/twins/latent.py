"""Twins of models of latent images: DiT, the U-Net of Stable Diffusion, VQ-VAE."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def heads_of(x: Tensor, heads: int) -> Tensor:
    """[B, T, heads*d] as [B, heads, T, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """The inverse of ``heads_of``."""
    return x.transpose(1, 2).flatten(2)


def waves(at: Tensor, half: int, like: Tensor) -> Tensor:
    """Cosines and sines of a step of diffusion."""
    slope = torch.exp(torch.arange(half, device=like.device, dtype=like.dtype) * (-math.log(10000) / half))
    angle = at[:, None].to(like.dtype) * slope
    return torch.cat([angle.cos(), angle.sin()], 1)


class SelfAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        found: Tensor = self.proj(joined(F.scaled_dot_product_attention(q, k, v)))
        return found


class DiTLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.ada, self.attn = nn.Linear(d, 6 * d), SelfAttention(d, heads)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, m1, g1, s2, m2, g2 = self.ada(F.silu(c))[:, None].chunk(6, -1)
        size = x.shape[-1:]
        x = x + g1 * self.attn(F.layer_norm(x, size, eps=1e-6) * (1 + m1) + s1)
        y = F.layer_norm(x, size, eps=1e-6) * (1 + m2) + s2
        return x + g2 * self.fc2(F.gelu(self.fc1(y), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, S: int, layers: int, d: int = 768, patch: int = 2) -> None:
        super().__init__()
        self.patch, self.side = patch, S // patch
        self.time1, self.time2, self.kinds = nn.Linear(256, d), nn.Linear(d, d), nn.Embedding(1001, d)
        self.patches = nn.Conv2d(4, d, patch, patch)
        self.h = nn.ModuleList(nn.ModuleDict({"layer": DiTLayer(d, 12)}) for _ in range(layers))
        self.ada, self.last = nn.Linear(d, 2 * d), nn.Linear(d, 8 * patch**2)
        slope = 10000.0 ** (-4.0 * torch.arange(d // 4, dtype=torch.float64) / d)
        angle = torch.arange(self.side)[:, None] * slope
        one = torch.cat([angle.sin(), angle.cos()], 1)
        grid = one.expand(self.side, -1, -1), one[:, None].expand(-1, self.side, -1)
        self.register_buffer("places", torch.cat(grid, -1).flatten(0, 1).float(), persistent=False)

    def forward(self, z: Tensor, at: Tensor, label: Tensor) -> Tensor:
        c = self.time2(F.silu(self.time1(waves(at, 128, z)))) + self.kinds(label)
        x = self.patches(z).flatten(2).mT + self.places
        for each in self.h:
            x = each["layer"](x, c)
        shift, scale = self.ada(F.silu(c))[:, None].chunk(2, -1)
        x = self.last(F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift)
        p = self.patch
        x = x.unflatten(1, (self.side, self.side)).unflatten(-1, (p, p, 8))
        return x.permute(0, 5, 1, 3, 2, 4).flatten(2, 3).flatten(3, 4)


class TimedResidual(nn.Module):
    def __init__(self, c: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, c), nn.Conv2d(c, out, 3, padding=1)
        self.time, self.norm2 = nn.Linear(time, out), nn.GroupNorm(32, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(c, out, 1) if c != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        found: Tensor = self.conv2(F.silu(self.norm2(y))) + self.skip(x)
        return found


class Attention(nn.Module):
    def __init__(self, d: int, seen: int, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.q = heads, nn.Linear(d, d, bias=False)
        self.k, self.v = nn.Linear(seen, d, bias=False), nn.Linear(seen, d, bias=False)
        self.o = nn.Linear(d, d)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (heads_of(y, self.heads) for y in (self.q(x), self.k(seen), self.v(seen)))
        found: Tensor = self.o(joined(F.scaled_dot_product_attention(q, k, v)))
        return found


class TextTransformer(nn.Module):
    def __init__(self, c: int, text: int = 768) -> None:
        super().__init__()
        self.norm, self.before, self.after = nn.GroupNorm(32, c, 1e-6), nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(c) for _ in range(3))
        self.own, self.cross = Attention(c, c), Attention(c, text)
        self.fc1, self.fc2 = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.before(self.norm(x)).flatten(2).mT
        z = self.norm1(y)
        y = y + self.own(z, z)
        y = y + self.cross(self.norm2(y), text)
        value, gate = self.fc1(self.norm3(y)).chunk(2, -1)
        y = y + self.fc2(value * F.gelu(gate))
        found: Tensor = x + self.after(y.mT.reshape(x.shape))
        return found


class Unit(nn.Module):
    def __init__(self, c: int, out: int, time: int, attends: bool) -> None:
        super().__init__()
        self.res, self.attn = TimedResidual(c, out, time), TextTransformer(out) if attends else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.res(x, time)
        return x if self.attn is None else self.attn(x, text)


class StableDiffusion(nn.Module):
    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.width, time = width, 4 * width
        self.time1, self.time2 = nn.Linear(width, time), nn.Linear(time, time)
        self.first = nn.Conv2d(4, width, 3, padding=1)
        sizes, now, kept = [width, 2 * width, 4 * width, 4 * width], width, [width]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for k, out in enumerate(sizes):
            inputs = [now if i == 0 else out for i in range(units)]
            stage = nn.ModuleDict({"unit": self._units(inputs, out, time, k < 3)})
            now = out
            kept += [out] * units
            if k < 3:
                stage["shrink"] = nn.Conv2d(out, out, 3, 2, 1)
                kept.append(out)
            self.down.append(stage)
        self.middle1, self.middle2 = Unit(now, now, time, True), TimedResidual(now, now, time)
        for k, out in enumerate(reversed(sizes)):
            inputs = [(now if i == 0 else out) + kept.pop() for i in range(units + 1)]
            stage = nn.ModuleDict({"unit": self._units(inputs, out, time, k > 0)})
            now = out
            if k < 3:
                stage["grow"] = nn.Conv2d(out, out, 3, padding=1)
            self.up.append(stage)
        self.norm, self.last = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

    def _units(self, inputs: Iterable[int], out: int, time: int, attends: bool) -> nn.ModuleList:
        return nn.ModuleList(nn.ModuleDict({"body": Unit(c, out, time, attends)}) for c in inputs)

    def forward(self, z: Tensor, at: Tensor, text: Tensor) -> Tensor:
        time = self.time2(F.silu(self.time1(waves(at, self.width // 2, z))))
        x = self.first(z)
        kept = [x]
        for stage in self.down:
            for unit in stage["unit"]:
                x = unit["body"](x, time, text)
                kept.append(x)
            if "shrink" in stage:
                x = stage["shrink"](x)
                kept.append(x)
        x = self.middle2(self.middle1(x, time, text), time)
        for stage in self.up:
            for unit in stage["unit"]:
                x = unit["body"](torch.cat([x, kept.pop()], 1), time, text)
            if "grow" in stage:
                x = stage["grow"](F.interpolate(x, scale_factor=2.0))
        found: Tensor = self.last(F.silu(self.norm(x)))
        return found


class PlainResidual(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.b(F.relu(self.a(F.relu(x))))
        return found


class VQVAE(nn.Module):
    """It has a loss of its own, since it has several results."""

    def __init__(self, c: int = 256, d: int = 64, count: int = 512) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, c, 4, 2, 1), nn.Conv2d(c, c, 4, 2, 1)
        self.enc1, self.enc2, self.dec1, self.dec2 = (PlainResidual(c) for _ in range(4))
        self.narrow, self.wide = nn.Conv2d(c, d, 1), nn.Conv2d(d, c, 3, padding=1)
        self.book = nn.Parameter(torch.empty(count, d).normal_(0.0, 0.1))
        self.up1, self.up2 = nn.ConvTranspose2d(c, c, 4, 2, 1), nn.ConvTranspose2d(c, 3, 4, 2, 1)

    def all(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.enc2(self.enc1(self.down2(F.relu(self.down1(image)))))
        z = self.narrow(F.relu(x)).permute(0, 2, 3, 1)
        near = (self.book.pow(2).sum(1) - 2 * z @ self.book.T).argmin(-1)
        e = self.book[near]
        x = self.wide((z + (e - z).detach()).permute(0, 3, 1, 2))
        return self.up2(F.relu(self.up1(F.relu(self.dec2(self.dec1(x)))))), z, e

    def forward(self, image: Tensor) -> Tensor:
        return self.all(image)[0]

    def loss(self, image: Tensor) -> Tensor:
        copy, z, e = (x.float() if x.dtype == torch.bfloat16 else x for x in self.all(image))
        return F.mse_loss(copy, image) + F.mse_loss(z.detach(), e) + 0.25 * F.mse_loss(z, e.detach())
