"""Twins of models of texts: Mamba, RetNet, DeBERTa-v3 and Gemma 2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _scan(keep: Tensor, add: Tensor, chunk: int) -> Tensor:
    """h[t] = keep[t]*h[t - 1] + add[t] of [B, T, C, N]: in all chunks at once, and then from chunk to chunk."""
    keep, add = (x.unflatten(1, (-1, chunk)) for x in (keep, add))
    h, left = add[:, :, 0], keep[:, :, 0]
    inside, lefts = [h], [left]
    for t in range(1, chunk):
        h, left = keep[:, :, t] * h + add[:, :, t], keep[:, :, t] * left
        inside.append(h)
        lefts.append(left)
    first = [torch.zeros_like(h[:, 0])]
    for c in range(h.shape[1] - 1):
        first.append(left[:, c] * first[-1] + h[:, c])
    begin = torch.stack(first, 1)[:, :, None]
    return (torch.stack(inside, 2) + torch.stack(lefts, 2) * begin).flatten(1, 2)


class _Selective(nn.Module):
    def __init__(self, d: int, n: int, rank: int) -> None:
        super().__init__()
        inner = 2 * d
        self.sizes = [rank, n, n]
        self.in_proj, self.out_proj = nn.Linear(d, 2 * inner, bias=False), nn.Linear(inner, d, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner)
        self.x_proj, self.dt_proj = nn.Linear(inner, rank + 2 * n, bias=False), nn.Linear(rank, inner)
        self.a_log = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.in_proj(x).chunk(2, 2)
        u = F.silu(self.conv(F.pad(u.mT, (3, 0)))).mT
        dt, b, c = self.x_proj(u).split(self.sizes, 2)
        dt = F.softplus(self.dt_proj(dt))
        with torch.autocast(x.device.type, enabled=False):
            wide = dt.float() if dt.dtype == torch.bfloat16 else dt
            keep = (wide[..., None] * -self.a_log.exp()).exp()
            h = _scan(keep, (wide * u)[..., None] * b[:, :, None], 16)
            y = (h * c[:, :, None]).sum(3)
        found: Tensor = self.out_proj((y.to(u.dtype) + u * self.skip) * F.silu(z))
        return found


class Mamba(nn.Module):
    def __init__(self, layers: int, vocab: int, d: int = 768, n: int = 16, rank: int = 48) -> None:
        super().__init__()
        self.tok, self.norm = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-5)
        nn.init.normal_(self.tok.weight, std=0.02)
        each = nn.ModuleDict
        self.h = nn.ModuleList(
            each({"norm": nn.RMSNorm(d, 1e-5), "mixer": _Selective(d, n, rank)}) for _ in range(layers)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for layer in self.h:
            x = x + layer["mixer"](layer["norm"](x))
        return F.linear(self.norm(x), self.tok.weight)


def _turned(x: Tensor, slope: Tensor) -> Tensor:
    angle = torch.arange(x.shape[-2], device=x.device, dtype=slope.dtype)[:, None] * slope
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x.dtype)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class _Retention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v, self.gate = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.out = nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor, left: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        n = q.shape[-1]
        slope = 10000.0 ** -torch.linspace(0, 1, n // 2, device=x.device, dtype=left.dtype)
        score = (_turned(q, slope) * n**-0.5) @ _turned(k, slope).mT * left
        score = score / score.detach().abs().sum(3, keepdim=True).clamp(min=1)
        y = F.rms_norm(score.to(v.dtype) @ v, v.shape[-1:], eps=1e-6).transpose(1, 2).flatten(2)
        found: Tensor = self.out(F.silu(self.gate(x)) * y)
        return found


class RetNet(nn.Module):
    def __init__(self, layers: int, d: int, vocab: int, heads: int = 3) -> None:
        super().__init__()
        self.tok, self.heads = nn.Embedding(vocab, d), heads
        nn.init.normal_(self.tok.weight, std=0.02)
        self.h = nn.ModuleList()
        for _ in range(layers):
            parts: dict[str, nn.Module] = {"norm1": nn.LayerNorm(d), "norm2": nn.LayerNorm(d)}
            parts |= {"mixer": _Retention(d, heads), "fc1": nn.Linear(d, 2 * d), "fc2": nn.Linear(2 * d, d)}
            self.h.append(nn.ModuleDict(parts))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        kept = (1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device, dtype=_wide(x)))).log()
        at = torch.arange(ids.shape[1], device=x.device, dtype=kept.dtype)
        left = (kept[:, None, None] * (at[:, None] - at)).exp().tril()
        left = left * left.sum(2, keepdim=True).rsqrt()
        for layer in self.h:
            x = x + layer["mixer"](layer["norm1"](x), left)
            x = x + layer["fc2"](F.gelu(layer["fc1"](layer["norm2"](x))))
        found: Tensor = self.head(self.norm(x))
        return found


class _Disentangled(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))

    def _by_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(self, x: Tensor, table: Tensor, at: Tensor) -> Tensor:
        q, k, v = (self._by_heads(f(x)) for f in (self.query, self.key, self.value))
        q_place, k_place = self._by_heads(self.query(table)), self._by_heads(self.key(table))
        span, shape = len(table) // 2, (*q.shape[:3], q.shape[2])
        to, since = ((sign * at + span).clamp(0, 2 * span - 1).expand(shape) for sign in (1, -1))
        scale = (3 * q.shape[-1]) ** -0.5
        score = q @ k.mT + (q @ k_place.mT).gather(3, to) + (k @ q_place.mT).gather(3, since).mT
        y = (score * scale).softmax(3).to(v.dtype) @ v
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class DeBERTa(nn.Module):
    def __init__(self, layers: int, vocab: int, d: int = 768, inner: int = 3072, span: int = 256) -> None:
        super().__init__()
        self.tok, self.span = nn.Embedding(vocab, d), span
        nn.init.normal_(self.tok.weight, std=0.02)
        self.norm, self.norm_distances = nn.LayerNorm(d, 1e-7), nn.LayerNorm(d, 1e-7)
        self.distances = nn.Parameter(torch.randn(2 * span, d) * 0.02)
        self.h = nn.ModuleList()
        for _ in range(layers):
            parts: dict[str, nn.Module] = {"norm1": nn.LayerNorm(d, 1e-7), "norm2": nn.LayerNorm(d, 1e-7)}
            parts |= {"attn": _Disentangled(d, 12), "fc1": nn.Linear(d, inner), "fc2": nn.Linear(inner, d)}
            self.h.append(nn.ModuleDict(parts))
        self.dense, self.head = nn.Linear(d, d), nn.Linear(d, 1)

    def _places(self, x: Tensor) -> Tensor:
        """As make_log_bucket_position of transformers."""
        near, each = self.span // 2, torch.arange(x.shape[1], device=x.device, dtype=_wide(x))
        away = each[:, None] - each
        far = (away.abs().clamp(min=near) / near).log() / math.log(511 / near) * (near - 1)
        return torch.where(away.abs() <= near, away, (far.ceil() + near) * away.sign()).long()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.tok(ids))
        table, at = self.norm_distances(self.distances), self._places(x)
        for layer in self.h:
            x = layer["norm1"](x + layer["attn"](x, table, at))
            x = layer["norm2"](x + layer["fc2"](F.gelu(layer["fc1"](x))))
        found: Tensor = self.head(F.gelu(self.dense(x)))[..., 0]
        return found


class _Norm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=1e-6) * (1 + self.scale)


class _Capped(nn.Module):
    def __init__(self, d: int, heads: int, kv: int, n: int, near: int) -> None:
        super().__init__()
        self.heads, self.kv, self.n, self.near = heads, kv, n, near
        self.q, self.out = nn.Linear(d, heads * n, bias=False), nn.Linear(heads * n, d, bias=False)
        self.k, self.v = nn.Linear(d, kv * n, bias=False), nn.Linear(d, kv * n, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (-1, self.n)).transpose(1, 2) for f in (self.q, self.k, self.v))
        slope = 10000.0 ** (-2.0 * torch.arange(self.n // 2, device=x.device, dtype=_wide(x)) / self.n)
        k, v = (y.repeat_interleave(self.heads // self.kv, 1) for y in (_turned(k, slope), v))
        score = 50 * (_turned(q, slope) @ k.mT * self.n**-0.5 / 50).tanh()
        at = torch.arange(x.shape[1], device=x.device)
        away = at[:, None] - at
        hidden = (away < 0) | (away >= self.near) if self.near else away < 0
        y = score.masked_fill(hidden, -torch.inf).softmax(3).to(v.dtype) @ v
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class _Gated(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(d, inner, bias=False), nn.Linear(d, inner, bias=False)
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))
        return found


class Gemma2(nn.Module):
    """Scores lie in memory, as transformers computes them: scaled_dot_product_attention knows no caps."""

    def __init__(self, layers: int, d: int, heads: int, kv: int, n: int, inner: int, near: int, vocab: int) -> None:
        super().__init__()
        self.tok, self.norm = nn.Embedding(vocab, d), _Norm(d)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.h = nn.ModuleList()
        for i in range(layers):
            parts: dict[str, nn.Module] = {f"norm{k}": _Norm(d) for k in range(1, 5)}
            parts["attn"] = _Capped(d, heads, kv, n, 0 if i % 2 else near)
            self.h.append(nn.ModuleDict(parts | {"feed": _Gated(d, inner)}))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) * self.tok.embedding_dim**0.5
        for layer in self.h:
            x = x + layer["norm2"](layer["attn"](layer["norm1"](x)))
            x = x + layer["norm4"](layer["feed"](layer["norm3"](x)))
        return 30 * (F.linear(self.norm(x), self.tok.weight) / 30).tanh()
