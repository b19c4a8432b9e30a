"""Twins of models whose layers pass a state from step to step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _ssd(x: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int) -> Tensor:
    """As in the paper's listing, with one group: x [B, T, H, P], a [B, T, H] in f32, b and c [B, T, N]."""
    x, b, c = (u.unflatten(1, (-1, chunk)) for u in (x, b, c))
    x, b, c = x.transpose(2, 3), b[:, :, None], c[:, :, None]
    s = a.unflatten(1, (-1, chunk)).transpose(2, 3).cumsum(3)  # [B, K, H, L]
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).tril()
    inside = (s[..., None] - s[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    y = ((c @ b.mT) * inside.to(c.dtype)) @ x
    states = (x * (s[..., -1:] - s).exp()[..., None].to(x.dtype)).mT @ b
    ends = s[..., -1].transpose(1, 2).cumsum(2)
    begins = F.pad(ends, (1, 0))[..., :-1]
    count = ends.shape[2]
    later = torch.ones(count, count, dtype=torch.bool, device=x.device).tril(-1)
    across = (begins[..., None] - ends[..., None, :]).masked_fill(~later, -torch.inf).exp()
    entering = torch.einsum("bhzc,bchpn->bzhpn", across.to(states.dtype), states)
    y = y + (c @ entering.mT) * s.exp()[..., None].to(x.dtype)
    return y.transpose(2, 3).flatten(1, 2)


class _Mixer(nn.Module):
    def __init__(self, d: int, heads: int, n: int) -> None:
        super().__init__()
        inner = 2 * d
        self.sizes, self.heads, self.n = [inner, inner + 2 * n, heads], heads, n
        self.in_proj, self.out_proj = nn.Linear(d, sum(self.sizes), bias=False), nn.Linear(inner, d, bias=False)
        self.conv = nn.Conv1d(inner + 2 * n, inner + 2 * n, 4, groups=inner + 2 * n)
        self.dt_bias, self.skip = nn.Parameter(torch.randn(heads) - 4), nn.Parameter(torch.ones(heads))
        self.a_log, self.norm = nn.Parameter(torch.linspace(1, 16, heads).log()), nn.RMSNorm(inner, 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        z, xbc, dt = self.in_proj(x).split(self.sizes, 2)
        xbc = F.silu(self.conv(F.pad(xbc.mT, (3, 0)))).mT
        u, b, c = xbc.split([self.sizes[0], self.n, self.n], 2)
        u = u.unflatten(2, (self.heads, -1))
        dt = F.softplus(dt + self.dt_bias)
        y = _ssd(u * dt[..., None].to(u.dtype), -self.a_log.exp() * dt, b, c, 64) + u * self.skip[:, None]
        found: Tensor = self.out_proj(self.norm(y.flatten(2) * F.silu(z)))
        return found


class Mamba2(nn.Module):
    def __init__(self, layers: int, vocab: int, d: int = 768, heads: int = 24, n: int = 128) -> None:
        super().__init__()
        self.tok, self.norm = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-5)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.h = nn.ModuleList(
            nn.ModuleDict({"norm": nn.RMSNorm(d, 1e-5), "mixer": _Mixer(d, heads, n)}) for _ in range(layers)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for layer in self.h:
            x = x + layer["mixer"](layer["norm"](x))
        return F.linear(self.norm(x), self.tok.weight)


class _Causal(nn.Module):
    def __init__(self, c: int, out: int, k: int, gap: int) -> None:
        super().__init__()
        self.g, self.v = nn.Parameter(torch.rand(out, 1, 1) + 0.5), nn.Parameter(torch.randn(out, c, k) * 0.1)
        self.bias, self.gap = nn.Parameter(torch.zeros(out, 1)), gap

    def forward(self, x: Tensor) -> Tensor:
        weight = self.v * self.g / self.v.flatten(1).norm(dim=1)[:, None, None]
        room = self.gap * (weight.shape[2] - 1)
        return F.conv1d(F.pad(x, (room, 0)), weight, self.bias[:, 0], dilation=self.gap)


class TCN(nn.Module):
    def __init__(self, levels: int = 8, width: int = 25, k: int = 7, classes: int = 10) -> None:
        super().__init__()
        self.level = nn.ModuleList()
        for i in range(levels):
            a, b = _Causal(width if i else 1, width, k, 2**i), _Causal(width, width, k, 2**i)
            self.level.append(nn.ModuleDict({"a": a, "b": b} | ({} if i else {"across": nn.Conv1d(1, width, 1)})))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        for each in self.level:
            y = each["b"](each["a"](x).relu()).relu()
            x = (y + (each["across"](x) if "across" in each else x)).relu()
        found: Tensor = self.head(x[:, :, -1])
        return found


def _normed(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    found: Tensor = norm(x.mT).mT
    return found


class DeepSpeech2(nn.Module):
    def __init__(self, layers: int, hidden: int, letters: int = 29) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 32, (41, 11), 2, (20, 5)), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32)
        self.h = nn.ModuleList()
        for i in range(layers):
            gru = nn.GRU(hidden if i else 32 * 41, hidden, bias=False, batch_first=True, bidirectional=True)
            self.h.append(nn.ModuleDict({"gru": gru} | ({"norm": nn.BatchNorm1d(hidden)} if i else {})))
        self.norm, self.head = nn.BatchNorm1d(hidden), nn.Linear(hidden, letters, bias=False)

    def forward(self, sound: Tensor) -> Tensor:
        x = F.hardtanh(self.norm1(self.conv1(sound)), 0, 20)
        x = F.hardtanh(self.norm2(self.conv2(x)), 0, 20).permute(0, 3, 1, 2).flatten(2)
        for each in self.h:
            y, _ = each["gru"](_normed(each["norm"], x) if "norm" in each else x)
            x = y.unflatten(2, (2, -1)).sum(2)
        found: Tensor = self.head(_normed(self.norm, x))
        return found
