"""Twins of PatchTST, a Fourier neural operator, NeRF and layers of DeepSeek-V2."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _line(i: int, o: int) -> nn.Linear:
    return nn.Linear(i, o, bias=False)


class _SelfAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found: Tensor = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return found


class PatchTST(nn.Module):
    def __init__(self, ahead: int = 96, layers: int = 3, heads: int = 16, d: int = 128, inner: int = 256) -> None:
        super().__init__()
        self.patch, self.places = nn.Linear(16, d), nn.Parameter(torch.rand(42, d) * 0.04 - 0.02)
        self.h = nn.ModuleList()
        for _ in range(layers):
            norms = {"norm1": _Norm(d), "norm2": _Norm(d)}
            feed = {"fc1": nn.Linear(d, inner), "fc2": nn.Linear(inner, d)}
            self.h.append(nn.ModuleDict({"attn": _SelfAttention(d, heads), **norms, **feed}))
        self.head = nn.Linear(42 * d, ahead)

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = x.mean(1, keepdim=True), (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        series = F.pad(((x - mean) / scale).mT, (0, 8), "replicate")
        y = self.patch(series.flatten(0, 1).unfold(1, 16, 8)) + self.places
        for each in self.h:
            y = each["norm1"](y + each["attn"](y))
            y = each["norm2"](y + each["fc2"](F.gelu(each["fc1"](y))))
        y = self.head(y.mT.reshape(len(x), x.shape[2], -1)).mT
        return y * scale + mean


class _Norm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.batchnorm = nn.BatchNorm1d(d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.batchnorm(x.flatten(0, 1)).view_as(x)
        return found


class _Spectral(nn.Module):
    def __init__(self, c: int, modes: int) -> None:
        super().__init__()
        self.re, self.im = (nn.Parameter((torch.rand(c, c, 2 * modes, modes) * 2 - 1) / c) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x, m, size = x.to(self.re.dtype), self.re.shape[3], x.shape[3]
        a = torch.fft.rfft2(x)[..., :m]
        low = torch.cat([a[:, :, :m], a[:, :, -m:]], 2)
        b = torch.einsum("bixy,ioxy->boxy", low, torch.complex(self.re, self.im))
        gap = b.new_zeros(*b.shape[:2], size - 2 * m, m)
        b = F.pad(torch.cat([b[:, :, :m], gap, b[:, :, m:]], 2), (0, size // 2 + 1 - m))
        return torch.fft.irfft2(b, (size, size))


class FNO(nn.Module):
    def __init__(self, n: int, modes: int = 12, width: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.n, self.lift = n, nn.Linear(3, width)
        self.h = nn.ModuleList(
            nn.ModuleDict({"spectral": _Spectral(width, modes), "conv": nn.Conv2d(width, width, 1)})
            for _ in range(layers)
        )
        self.fc1, self.fc2 = nn.Linear(width, 128), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        n = self.n
        at = torch.linspace(0, 1, n, device=x.device, dtype=x.dtype)
        y = torch.stack([x, at[:, None].expand_as(x), at.expand_as(x)], 3)
        y = F.pad(self.lift(y).permute(0, 3, 1, 2), (0, 9, 0, 9))
        for i, each in enumerate(self.h):
            y = each["spectral"](y) + each["conv"](y)
            y = F.gelu(y) if i < len(self.h) - 1 else y
        found: Tensor = self.fc2(F.gelu(self.fc1(y[:, :, :n, :n].permute(0, 2, 3, 1))))[..., 0]
        return found


def _waves(x: Tensor, count: int) -> Tensor:
    return torch.cat([x, *(f(2**k * x) for k in range(count) for f in (torch.sin, torch.cos))], -1)


class NeRF(nn.Module):
    def __init__(self, samples: int, wide: int = 256) -> None:
        super().__init__()
        self.samples = samples
        widths = [63, *[wide] * 4, wide + 63, wide, wide]
        self.h = nn.ModuleList(nn.ModuleDict({"fc": nn.Linear(each, wide)}) for each in widths)
        self.density, self.features, self.views = (
            nn.Linear(wide, 1),
            nn.Linear(wide, wide),
            nn.Linear(wide + 27, wide // 2),
        )
        self.colour = nn.Linear(wide // 2, 3)

    def forward(self, origin: Tensor, toward: Tensor) -> Tensor:
        depth = torch.linspace(2, 6, self.samples, device=origin.device, dtype=origin.dtype)
        near = _waves(origin[:, None] + toward[:, None] * depth[:, None], 10)
        x = near
        for i, each in enumerate(self.h):
            x = each["fc"](x).relu()
            x = torch.cat([near.to(x.dtype), x], 2) if i == 4 else x
        density = self.density(x)[..., 0].relu()
        view = _waves(toward / toward.norm(dim=1, keepdim=True), 4)[:, None].expand(-1, self.samples, -1)
        y = self.features(x)
        y = self.views(torch.cat([y, view.to(y.dtype)], 2)).relu()
        colour = self.colour(y).sigmoid()
        opaque = 1 - (-density.to(origin.dtype) * (4.0 / (self.samples - 1))).exp()
        free = (1 - opaque + 1e-10).cumprod(1)
        seen = torch.cat([torch.ones_like(free[:, :1]), free[:, :-1]], 1)
        return ((opaque * seen)[..., None] * colour).sum(1)


def _turned(x: Tensor) -> Tensor:
    half = x.shape[3] // 2
    slope = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[2], device=x.device)[:, None] * slope.to(
        x.dtype if x.dtype == torch.float64 else slope.dtype
    )
    a, b = x.chunk(2, 3)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 3).to(x.dtype)


class _Latent(nn.Module):
    def __init__(self, d: int, heads: int = 16, n: int = 128, turned: int = 64, latent: int = 512) -> None:
        super().__init__()
        self.heads, self.parts, self.latent = heads, [n, turned], [latent, turned]
        self.q, self.kv_a, self.norm = (
            _line(d, heads * (n + turned)),
            _line(d, latent + turned),
            nn.RMSNorm(latent, 1e-6),
        )
        self.kv_b, self.out = _line(latent, 2 * heads * n), _line(heads * n, d)

    def forward(self, x: Tensor) -> Tensor:
        q, q_turned = self.q(x).unflatten(2, (self.heads, -1)).transpose(1, 2).split(self.parts, 3)
        c, k_turned = self.kv_a(x).split(self.latent, 2)
        k, v = self.kv_b(self.norm(c)).unflatten(2, (self.heads, 2, -1)).permute(3, 0, 2, 1, 4)
        k_turned = _turned(k_turned[:, None]).expand(-1, self.heads, -1, -1)
        q, k = torch.cat([q, _turned(q_turned)], 3), torch.cat([k, k_turned], 3)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class _Feed(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.gate_up, self.down = _line(d, 2 * inner), _line(inner, d)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        found: Tensor = self.down(F.silu(gate) * up)
        return found


class _Experts(nn.Module):
    def __init__(self, d: int, count: int, best: int, inner: int, room: int) -> None:
        super().__init__()
        self.best, self.room, self.router = best, room, _line(d, count)
        self.gate_up = nn.Parameter(torch.randn(count, d, 2 * inner) * d**-0.5)
        self.down = nn.Parameter(torch.randn(count, inner, d) * inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        flat, (count, d, _), room = x.flatten(0, 1), self.gate_up.shape, self.room
        score, which = self.router(flat).softmax(-1).topk(self.best)
        chosen = which.T.flatten()
        taken = F.one_hot(chosen, count)
        place = (taken.cumsum(0) * taken).sum(1) - 1
        at = torch.where(place < room, chosen * room + place, count * room)
        slots = flat.new_zeros(count * room + 1, d).index_copy(0, at, flat.repeat(self.best, 1))[: count * room]
        gate, up = (slots.unflatten(0, (count, room)) @ self.gate_up).chunk(2, -1)
        y = ((F.silu(gate) * up) @ self.down).flatten(0, 1)
        y = torch.cat([y, y.new_zeros(1, d)])[at] * score.T.reshape(-1, 1).to(y.dtype)
        return y.unflatten(0, (self.best, -1)).sum(0).view_as(x)


class DeepSeek(nn.Module):
    def __init__(self, layers: int, vocab: int, d: int, inner: int, count: int, narrow: int, room: int) -> None:
        super().__init__()
        self.tok, self.norm, self.head = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-6), _line(d, vocab)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        self.h = nn.ModuleList()
        for i in range(layers):
            parts = {"norm1": nn.RMSNorm(d, 1e-6), "norm2": nn.RMSNorm(d, 1e-6), "attn": _Latent(d)}
            experts = {"shared": _Feed(d, 2 * narrow), "experts": _Experts(d, count, 6, narrow, room)}
            self.h.append(nn.ModuleDict(parts | (experts if i else {"feed": _Feed(d, inner)})))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for each in self.h:
            x = x + each["attn"](each["norm1"](x))
            y = each["norm2"](x)
            x = x + (each["feed"](y) if "feed" in each else each["shared"](y) + each["experts"](y))
        found: Tensor = self.head(self.norm(x))
        return found
