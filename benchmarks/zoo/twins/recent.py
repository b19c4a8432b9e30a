"""Twins of a language model with gated attention, of TabPFN v2 and of TimeMixer, of 2024 and 2025."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _line(i: int, o: int) -> nn.Linear:
    return nn.Linear(i, o, bias=False)


class _GatedAttention(nn.Module):
    def __init__(self, d: int, heads: int, kv: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, n = heads, kv, d // heads
        self.q, self.kv, self.gate, self.out = _line(d, d), _line(d, 2 * kv * n), _line(d, d), _line(d, d)
        self.q_norm, self.k_norm = nn.RMSNorm(n, 1e-6), nn.RMSNorm(n, 1e-6)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        def split(y: Tensor, heads: int) -> Tensor:
            return y.unflatten(2, (heads, -1)).transpose(1, 2)

        def turned(u: Tensor) -> Tensor:
            a, b = u.chunk(2, -1)
            cos, sin = turn
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(v.dtype)

        k, v = (split(u, self.kv_heads) for u in self.kv(x).chunk(2, -1))
        q, k = turned(self.q_norm(split(self.q(x), self.heads))), turned(self.k_norm(k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2) * torch.sigmoid(self.gate(x)))
        return found


class _GatedLayer(nn.Module):
    def __init__(self, d: int, heads: int, kv: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.RMSNorm(d, 1e-6), nn.RMSNorm(d, 1e-6), _GatedAttention(d, heads, kv)
        self.gate_up, self.down = _line(d, 2 * inner), _line(inner, d)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attn(self.norm1(x), turn)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        found: Tensor = x + self.down(F.silu(gate) * up)
        return found


class GatedLM(nn.Module):
    def __init__(self, d: int = 768, heads: int = 12, vocab: int = 32_000) -> None:
        super().__init__()
        self.half = d // heads // 2
        self.tok, self.norm, self.head = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-6), _line(d, vocab)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        self.h = nn.ModuleList(_GatedLayer(d, heads, 4, 2048) for _ in range(12))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        slope = 10000.0 ** (-torch.arange(self.half, device=x.device, dtype=self.tok.weight.dtype) / self.half)
        angle = torch.arange(ids.shape[1], device=x.device)[:, None] * slope
        for layer in self.h:
            x = layer(x, (angle.cos(), angle.sin()))
        found: Tensor = self.head(self.norm(x))
        return found


class _Across(nn.Module):
    """Attention along the cells of each line."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.q, self.kv, self.out = heads, _line(d, d), _line(d, 2 * d), _line(d, d)

    def forward(self, x: Tensor, known: int) -> Tensor:
        q, k, v = (
            u.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for u in (self.q(x), *self.kv(x[:, :, :known]).chunk(2, -1))
        )
        found: Tensor = self.out(F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2))
        return found


class _TableLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.columns, self.rows = _Across(d, heads), _Across(d, heads)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, z: Tensor, known: int) -> Tensor:
        z = F.layer_norm(z + self.columns(z, z.shape[2]), z.shape[-1:])
        z = F.layer_norm(z + self.rows(z.transpose(1, 2), known).transpose(1, 2), z.shape[-1:])
        return F.layer_norm(z + self.down(F.gelu(self.up(z))), z.shape[-1:])


class TabPFN(nn.Module):
    def __init__(self, R: int, M: int, d: int = 192, heads: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.known, self.classes = R - M, classes
        self.cell, self.label = nn.Linear(1, d), nn.Embedding(classes + 1, d)
        self.h = nn.ModuleList(_TableLayer(d, heads) for _ in range(12))
        self.head1, self.head2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, classes)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        given = x[:, : self.known]
        scale = given.std(1, correction=0, keepdim=True) + 1e-6
        x = ((x - given.mean(1, keepdim=True)) / scale).clamp(-100, 100)
        y = torch.where(torch.arange(y.shape[1], device=y.device) < self.known, y, self.classes)
        cells = self.cell(x[..., None])
        z = torch.cat([cells, self.label(y)[:, :, None].to(cells.dtype)], 2)
        for layer in self.h:
            z = layer(z, self.known)
        found: Tensor = self.head2(F.gelu(self.head1(z[:, self.known :, -1])))
        return found


class _Along(nn.Module):
    """Two layers along time."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(size, out), nn.Linear(out, out)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.b(F.gelu(self.a(x.mT))).mT
        return found


def _mix(size: int, out: int) -> nn.Module:
    return nn.ModuleDict({"mix": _Along(size, out)})


class _Mixed(nn.Module):
    def __init__(self, sizes: list[int], d: int, hidden: int) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.down = nn.ModuleList(_mix(fine, coarse) for fine, coarse in pairs)
        self.up = nn.ModuleList(_mix(coarse, fine) for fine, coarse in reversed(pairs))
        self.wide, self.narrow = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, xs: list[Tensor]) -> list[Tensor]:
        trends = [F.avg_pool1d(F.pad(x.mT, (12, 12), "replicate"), 25, 1).mT for x in xs]
        seasons = [x - t for x, t in zip(xs, trends)]
        for i, each in enumerate(self.down):
            seasons[i + 1] = seasons[i + 1] + each["mix"](seasons[i])
        for i, each in zip(reversed(range(len(xs) - 1)), self.up):
            trends[i] = trends[i] + each["mix"](trends[i + 1])
        return [x + self.narrow(F.gelu(self.wide(s + t))) for x, s, t in zip(xs, seasons, trends)]


class TimeMixer(nn.Module):
    def __init__(self, n: int, T: int = 96, P: int = 96, d: int = 64) -> None:
        super().__init__()
        sizes = [T // 2**i for i in range(4)]
        self.embed, self.project = nn.Linear(n, d), nn.Linear(d, n)
        self.h = nn.ModuleList(nn.ModuleDict({"mix": _Mixed(sizes, d, 128)}) for _ in range(3))
        self.ahead = nn.ModuleList(nn.Linear(size, P) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = x.mean(1, keepdim=True), (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        series = [(x - mean) / scale]
        for _ in range(3):
            series.append(F.avg_pool1d(series[-1].mT, 2).mT)
        hidden = [self.embed(y) for y in series]
        for layer in self.h:
            hidden = layer["mix"](hidden)
        parts = [self.project(ahead(y.mT).mT) for ahead, y in zip(self.ahead, hidden)]
        return (parts[0] + parts[1] + parts[2] + parts[3]) * scale + mean
