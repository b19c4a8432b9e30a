"""Twins of models of 2024 and 2025."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Norm(nn.LayerNorm):
    def __init__(self, d: int) -> None:
        super().__init__(d, bias=False)


def _turned(x: Tensor, base: float) -> Tensor:
    """Pairs are (i, i + N/2)."""
    slope = base ** (-2.0 * torch.arange(x.shape[-1] // 2, device=x.device) / x.shape[-1])
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * slope
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x.dtype)


class _BertAttention(nn.Module):
    def __init__(self, d: int, heads: int, whole: bool, near: int) -> None:
        super().__init__()
        self.heads, self.whole, self.near = heads, whole, near
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        base = 160_000.0 if self.whole else 10_000.0
        at = torch.arange(x.shape[1], device=x.device)
        seen = None if self.whole else (at[:, None] - at).abs() <= self.near
        y = F.scaled_dot_product_attention(_turned(q, base), _turned(k, base), v, seen)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class _BertLayer(nn.Module):
    def __init__(self, d: int, heads: int, inner: int, near: int, number: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.Identity() if number == 0 else _Norm(d), _Norm(d)
        self.attn = _BertAttention(d, heads, number % 3 == 0, near)
        self.up, self.down = nn.Linear(d, 2 * inner, bias=False), nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        y, gate = self.up(self.ln2(x)).chunk(2, -1)
        found: Tensor = x + self.down(F.gelu(y) * gate)
        return found


class ModernBert(nn.Module):
    """Local layers have a mask: scaled_dot_product_attention knows no windows."""

    def __init__(self, d: int = 768, vocab: int = 50_368) -> None:
        super().__init__()
        self.tok, self.ln = nn.Embedding(vocab, d), _Norm(d)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.h = nn.ModuleList(_BertLayer(d, 12, 1152, 64, i) for i in range(22))
        self.last, self.dense, self.ln_head = _Norm(d), nn.Linear(d, d, bias=False), _Norm(d)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.ln(self.tok(ids))
        for layer in self.h:
            x = layer(x)
        return F.linear(self.ln_head(F.gelu(self.dense(self.last(x)))), self.tok.weight, self.bias)


class _JitAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.q_norm, self.k_norm = nn.RMSNorm(d // heads, 1e-6), nn.RMSNorm(d // heads, 1e-6)

    def forward(self, x: Tensor, angle: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

        def turned(u: Tensor) -> Tensor:
            half = torch.stack([-u[..., 1::2], u[..., ::2]], -1).flatten(-2)
            return (u * angle.cos() + half * angle.sin()).to(v.dtype)

        y = F.scaled_dot_product_attention(turned(self.q_norm(q)), turned(self.k_norm(k)), v)
        found: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return found


class _JitLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.ada, self.attn = nn.Linear(d, 6 * d), _JitAttention(d, heads)
        self.norm1, self.norm2 = nn.RMSNorm(d, 1e-6), nn.RMSNorm(d, 1e-6)
        self.gate_up, self.down = nn.Linear(d, 2 * (8 * d // 3)), nn.Linear(8 * d // 3, d)

    def forward(self, x: Tensor, c: Tensor, angle: Tensor) -> Tensor:
        s1, m1, g1, s2, m2, g2 = self.ada(F.silu(c))[:, None].chunk(6, -1)
        x = x + g1 * self.attn(self.norm1(x) * (1 + m1) + s1, angle)
        gate, up = self.gate_up(self.norm2(x) * (1 + m2) + s2).chunk(2, -1)
        found: Tensor = x + g2 * self.down(F.silu(gate) * up)
        return found


class JiT(nn.Module):
    def __init__(self, S: int, d: int = 768, patch: int = 16, extra: int = 32, start: int = 4) -> None:
        super().__init__()
        self.side, self.patch, self.extra, self.start = S // patch, patch, extra, start
        self.time1, self.time2, self.kinds = nn.Linear(256, d), nn.Linear(d, d), nn.Embedding(1001, d)
        self.patches, self.wide = nn.Conv2d(3, 128, patch, patch, bias=False), nn.Conv2d(128, d, 1)
        self.h = nn.ModuleList(nn.ModuleDict({"layer": _JitLayer(d, 12)}) for _ in range(12))
        self.h[start].places = nn.Parameter(torch.randn(extra, d) * 0.02)
        self.ada, self.norm, self.last = nn.Linear(d, 2 * d), nn.RMSNorm(d, 1e-6), nn.Linear(d, 3 * patch**2)
        self.register_buffer("grid", self._grid(d), persistent=False)
        self.register_buffer("angle", self._angle(d // 12), persistent=False)

    def _grid(self, d: int) -> Tensor:
        slope = 10000.0 ** (-4.0 * torch.arange(d // 4) / d)
        angle = torch.arange(self.side)[:, None] * slope
        one = torch.cat([angle.sin(), angle.cos()], -1)
        square = self.side, self.side, d // 2
        return torch.cat([one.expand(square), one[:, None].expand(square)], -1).flatten(0, 1)

    def _angle(self, size: int) -> Tensor:
        slope = (10000.0 ** (-4.0 * torch.arange(size // 4) / size)).repeat_interleave(2)
        at = torch.arange(self.side)[:, None] * slope
        square = self.side, self.side, size // 2
        return torch.cat([at[:, None].expand(square), at.expand(square)], -1).flatten(0, 1)

    def forward(self, z: Tensor, logit: Tensor, label: Tensor) -> Tensor:
        t = torch.sigmoid(logit)
        slope = torch.exp(-math.log(10000.0) * torch.arange(128, device=t.device, dtype=t.dtype) / 128)
        turn = 1000 * t[:, None] * slope
        kind = self.kinds(label)
        c = kind + self.time2(F.silu(self.time1(torch.cat([turn.cos(), turn.sin()], -1))))
        x = self.wide(self.patches(z)).flatten(2).transpose(1, 2) + self.grid
        angle = self.angle
        for i, each in enumerate(self.h):
            if i == self.start:
                x = torch.cat([kind[:, None] + each.places, x], 1)
                angle = F.pad(angle, (0, 0, self.extra, 0))
            x = each["layer"](x, c, angle)
        shift, scale = self.ada(F.silu(c))[:, None].chunk(2, -1)
        x = self.last(self.norm(x[:, self.extra :]) * (1 + scale) + shift)
        x = x.unflatten(1, (self.side, self.side)).unflatten(-1, (self.patch, self.patch, 3))
        x = x.permute(0, 5, 1, 3, 2, 4).reshape(z.shape)
        return (x - z) / (1 - t).clamp(0.05).view(-1, 1, 1, 1)


class _Unit(nn.Module):
    def __init__(self, c: int, out: int, k: int = 1, s: int = 1, groups: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c, out, k, s, k // 2, groups=groups, bias=False)
        self.batchnorm, self.act = nn.BatchNorm2d(out, 1e-3, 0.03), nn.SiLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.act(self.batchnorm(self.conv(x)))
        return found


class _Bottleneck(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = _Unit(c, c // 2, 3), _Unit(c // 2, c, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.b(self.a(x))
        return found


class _C3k2(nn.Module):
    def __init__(self, c: int, out: int) -> None:
        super().__init__()
        mid = out // 4
        self.cv1, self.cv2 = _Unit(c, 2 * mid), _Unit(3 * mid, out)
        self.m = nn.ModuleList([nn.ModuleDict({"one": _Bottleneck(mid)})])

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        parts += [self.m[0]["one"](parts[-1])]
        found: Tensor = self.cv2(torch.cat(parts, 1))
        return found


class _AreaAttention(nn.Module):
    def __init__(self, c: int, area: int) -> None:
        super().__init__()
        self.heads, self.area, self.qkv = c // 32, area, _Unit(c, 3 * c, act=False)
        self.pe, self.proj = _Unit(c, c, 7, groups=c, act=False), _Unit(c, c, act=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.qkv(x).flatten(2).transpose(1, 2)  # [B, N, 3C], as torch's kernels of attention want it
        each = rows.unflatten(2, (self.heads, 3, 32)).unflatten(1, (self.area, -1))  # [B, a, n, h, three, d]
        q, k, v = each.flatten(0, 1).permute(3, 0, 2, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        y, v = (u.transpose(1, 2).reshape(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2) for u in (y, v))
        found: Tensor = self.proj(y + self.pe(v))
        return found


class _ABlock(nn.Module):
    def __init__(self, c: int, area: int) -> None:
        super().__init__()
        self.attn, self.up, self.down = _AreaAttention(c, area), _Unit(c, 2 * c), _Unit(2 * c, c, act=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        found: Tensor = x + self.down(self.up(x))
        return found


class _A2C2f(nn.Module):
    def __init__(self, c: int, out: int, area: int) -> None:
        super().__init__()
        mid = out // 2
        self.cv1, self.cv2 = _Unit(c, mid), _Unit(3 * mid, out)
        self.m = nn.ModuleList(
            nn.ModuleDict({"pair": nn.ModuleList(nn.ModuleDict({"one": _ABlock(mid, area)}) for _ in range(2))})
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for each in self.m:
            y = parts[-1]
            for block in each["pair"]:
                y = block["one"](y)
            parts.append(y)
        found: Tensor = self.cv2(torch.cat(parts, 1))
        return found


class Yolo12(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p1, self.p2, self.c2 = _Unit(3, 32, 3, 2), _Unit(32, 64, 3, 2), _C3k2(64, 128)
        self.p3, self.c3, self.p4 = _Unit(128, 128, 3, 2), _C3k2(128, 256), _Unit(256, 256, 3, 2)
        self.c4, self.p5, self.c5 = _A2C2f(256, 256, 4), _Unit(256, 512, 3, 2), _A2C2f(512, 512, 1)
        self.wide, self.head = _Unit(512, 1280), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.p1, self.p2, self.c2, self.p3, self.c3, self.p4, self.c4, self.p5, self.c5, self.wide):
            x = layer(x)
        found: Tensor = self.head(x.mean((2, 3)))
        return found
