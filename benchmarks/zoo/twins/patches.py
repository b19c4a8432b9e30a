"""Twins whose parts are patches or capsules: MLP-Mixer, XCiT, SwinIR, CapsNet."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twins.latent import heads_of, joined

_Norm = partial(nn.LayerNorm, eps=1e-6)


class MLP(nn.Module):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return found


class MixerLayer(nn.Module):
    def __init__(self, count: int, d: int) -> None:
        super().__init__()
        self.ln1, self.ln2, self.tokens, self.channels = _Norm(d), _Norm(d), MLP(count, 384), MLP(d, 3072)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.ln1(x).mT).mT
        found: Tensor = x + self.channels(self.ln2(x))
        return found


class Mixer(nn.Module):
    """For an Image."""

    def __init__(self, S: int, layers: int, d: int = 768) -> None:
        super().__init__()
        self.patches, self.norm, self.head = nn.Conv2d(3, d, 16, 16), _Norm(d), nn.Linear(d, 1000)
        self.h = nn.ModuleList(nn.ModuleDict({"layer": MixerLayer((S // 16) ** 2, d)}) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        for each in self.h:
            x = each["layer"](x)
        found: Tensor = self.head(self.norm(x).mean(1))
        return found


class Across(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.temperature, self.heads = nn.Parameter(torch.ones(heads, 1, 1)), heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads).mT for part in self.qkv(x).chunk(3, -1))
        attn = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature).softmax(-1)
        found: Tensor = self.proj((attn @ v).permute(0, 3, 1, 2).flatten(2))
        return found


class Near(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(d, d, 3, padding=1, groups=d) for _ in range(2))
        self.bn = nn.BatchNorm2d(d)

    def forward(self, x: Tensor, side: int) -> Tensor:
        y = self.conv2(self.bn(F.gelu(self.conv1(x.mT.unflatten(2, (side, side))))))
        found: Tensor = y.flatten(2).mT
        return found


class XCiTLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.gamma1, self.gamma2, self.gamma3 = (nn.Parameter(torch.ones(d)) for _ in range(3))
        self.norm1, self.norm2, self.norm3 = _Norm(d), _Norm(d), _Norm(d)
        self.attn, self.local, self.mlp = Across(d, heads), Near(d), MLP(d, 4 * d)

    def forward(self, x: Tensor, side: int) -> Tensor:
        x = x + self.gamma1 * self.attn(self.norm1(x))
        x = x + self.gamma3 * self.local(self.norm3(x), side)
        found: Tensor = x + self.gamma2 * self.mlp(self.norm2(x))
        return found


class ClassLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gamma1, self.gamma2 = (nn.Parameter(torch.ones(d)) for _ in range(2))
        self.norm1, self.norm2, self.mlp = _Norm(d), _Norm(d), MLP(d, 4 * d)
        self.q, self.k, self.v, self.proj = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (heads_of(f(z), self.heads) for f, z in ((self.q, y[:, :1]), (self.k, y), (self.v, y)))
        asked = self.proj(joined(F.scaled_dot_product_attention(q, k, v)))
        x = self.norm2(x + self.gamma1 * torch.cat([asked, y[:, 1:]], 1))
        return x + torch.cat([self.gamma2 * self.mlp(x[:, :1]), x[:, 1:]], 1)


class XCiT(nn.Module):
    """For an Image."""

    def __init__(self, layers: int, d: int = 384, heads: int = 8) -> None:
        super().__init__()
        sizes = [3, *(d >> 3 - i for i in range(4))]
        self.stem = nn.ModuleList(
            nn.ModuleDict({"down": nn.ModuleDict({
                "conv": nn.Conv2d(c, out, 3, 2, 1, bias=False), "batchnorm": nn.BatchNorm2d(out),
            })}) for c, out in pairwise(sizes)
        )  # fmt: skip
        self.pos = nn.ModuleDict({"mix": nn.Conv2d(64, d, 1)})
        self.h = nn.ModuleList(nn.ModuleDict({"layer": XCiTLayer(d, heads)}) for _ in range(layers))
        self.token = nn.Parameter(torch.empty(1, 1, d).normal_(0.0, 0.02))
        self.top = nn.ModuleList(nn.ModuleDict({"layer": ClassLayer(d, heads)}) for _ in range(2))
        self.norm, self.head = _Norm(d), nn.Linear(d, 1000)

    def places(self, side: int, x: Tensor) -> Tensor:
        at = (torch.arange(side, device=x.device, dtype=x.dtype) + 1) * (2 * math.pi / (side + 1e-6))
        slope = 10000.0 ** ((torch.arange(32, device=x.device, dtype=x.dtype) / 2).floor() / -16)
        angle = at[:, None] * slope
        one = torch.stack([angle[:, ::2].sin(), angle[:, 1::2].cos()], 2).flatten(1)
        grid = torch.cat([one[:, None].expand(-1, side, -1), one.expand(side, -1, -1)], -1)
        found: Tensor = self.pos["mix"](grid.permute(2, 0, 1)[None])
        return found

    def forward(self, x: Tensor) -> Tensor:
        for i, each in enumerate(self.stem):
            x = each["down"]["batchnorm"](each["down"]["conv"](x))
            x = F.gelu(x) if i < 3 else x
        side = x.shape[2]
        x = (x + self.places(side, x)).flatten(2).mT
        for each in self.h:
            x = each["layer"](x, side)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        for each in self.top:
            x = each["layer"](x)
        found: Tensor = self.head(self.norm(x)[:, 0])
        return found


class WindowAttention(nn.Module):
    """In windows of w x w pixels, in an image rolled by s."""

    def __init__(self, d: int, heads: int, w: int, s: int) -> None:
        super().__init__()
        self.heads, self.w, self.s = heads, w, s
        self.qkv, self.proj, self.bias = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Embedding((2 * w - 1) ** 2, heads)
        at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None] + w - 1
        self.register_buffer("ids", apart[0] * (2 * w - 1) + apart[1], persistent=False)

    def parts(self, x: Tensor) -> Tensor:
        """[B, N, N, C] as [B, windows, pixels, C]."""
        w = self.w
        return x.unflatten(2, (-1, w)).unflatten(1, (-1, w)).transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        n, w, s = x.shape[1], self.w, self.s
        scores = self.bias(self.ids).permute(2, 0, 1)
        if s:
            x = x.roll((-s, -s), (1, 2))
            i = torch.zeros(n, device=x.device, dtype=x.dtype)
            i[n - w :], i[n - s :] = 1, 2
            part = self.parts((3 * i[:, None] + i)[None, :, :, None])[0, :, :, 0]
            apart = (part[:, None] != part[:, :, None]).to(scores.dtype) * -100
            scores = scores + apart[:, None]
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(2, 3) for y in self.parts(self.qkv(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, scores.expand(len(x), q.shape[1], -1, -1, -1))
        y = y.transpose(2, 3).flatten(3).unflatten(2, (w, w)).unflatten(1, (n // w, n // w))
        y = self.proj(y.transpose(2, 3).flatten(3, 4).flatten(1, 2))
        return y.roll((s, s), (1, 2)) if s else y


class SwinLayer(nn.Module):
    def __init__(self, d: int, heads: int, w: int, s: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(d), nn.LayerNorm(d), WindowAttention(d, heads, w, s)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        found: Tensor = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return found


class SwinIR(nn.Module):
    def __init__(self, groups: int, layers: int, d: int = 180, heads: int = 6, w: int = 8) -> None:
        super().__init__()
        self.first, self.body = nn.Conv2d(3, d, 3, padding=1), nn.Conv2d(d, d, 3, padding=1)
        self.norm, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.group = nn.ModuleList()
        for _ in range(groups):
            inner = (SwinLayer(d, heads, w, w // 2 * (j % 2)) for j in range(layers))
            last = nn.ModuleDict({"conv": nn.Conv2d(d, d, 3, padding=1)})
            self.group.append(
                nn.ModuleDict({"h": nn.ModuleList(nn.ModuleDict({"layer": x}) for x in inner), "last": last})
            )
        self.before, self.last = nn.Conv2d(d, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.up = nn.ModuleList([nn.ModuleDict({"conv": nn.Conv2d(64, 256, 3, padding=1)})])

    def forward(self, image: Tensor) -> Tensor:
        first = self.first(image)
        x = self.norm(first.permute(0, 2, 3, 1))
        for group in self.group:
            y = x
            for each in group["h"]:
                y = each["layer"](y)
            x = x + group["last"]["conv"](y.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = first + self.body(self.norm2(x).permute(0, 3, 1, 2))
        x = F.leaky_relu(self.before(x), 0.01)
        for each in self.up:
            x = F.pixel_shuffle(each["conv"](x), 2)
        found: Tensor = self.last(x)
        return found


def squash(x: Tensor) -> Tensor:
    square = x.square().sum(-1, keepdim=True)
    return x * (square / (1 + square) * (square + 1e-8).rsqrt())


class CapsNet(nn.Module):
    """It has a loss of its own, since it has several results."""

    def __init__(self, rounds: int = 3) -> None:
        super().__init__()
        self.conv, self.primary, self.rounds = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2), rounds
        self.digits = nn.ParameterDict({"w": nn.Parameter(torch.empty(1152, 10, 16, 8).normal_(0.0, 0.1))})
        self.fc1, self.fc2, self.fc3 = nn.Linear(160, 512), nn.Linear(512, 1024), nn.Linear(1024, 784)

    def all(self, image: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
        u = self.primary(self.conv(image).relu()).unflatten(1, (32, 8)).movedim(2, -1).flatten(1, 3)
        votes = torch.einsum("bid,ijsd->bijs", squash(u), self.digits["w"])
        fixed = votes.detach()
        logits = torch.zeros(votes.shape[:3], device=votes.device, dtype=votes.dtype)
        for _ in range(self.rounds - 1):
            v = squash(torch.einsum("bij,bijs->bjs", logits.softmax(-1), fixed))
            logits = logits + torch.einsum("bijs,bjs->bij", fixed, v)
        v = squash(torch.einsum("bij,bijs->bjs", logits.softmax(-1), votes))
        right = v * F.one_hot(kind, 10).to(v.dtype)[:, :, None]
        copy = self.fc3(self.fc2(self.fc1(right.flatten(1)).relu()).relu()).sigmoid()
        return v.norm(dim=2), copy

    def forward(self, image: Tensor, kind: Tensor) -> Tensor:
        return self.all(image, kind)[0]

    def loss(self, image: Tensor, kind: Tensor) -> Tensor:
        lengths, copy = (x.float() if x.dtype == torch.bfloat16 else x for x in self.all(image, kind))
        right = F.one_hot(kind, 10).to(lengths.dtype)
        margin = right * (0.9 - lengths).relu() ** 2 + 0.5 * (1 - right) * (lengths - 0.1).relu() ** 2
        return margin.sum(1).mean() + 0.0005 * (copy - image.flatten(1)).square().sum(1).mean()
