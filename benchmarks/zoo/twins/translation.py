"""The base Transformer and a mixture of experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _waves(length: int, d: int, like: Tensor) -> Tensor:
    slope = 10000.0 ** (-2.0 * torch.arange(d // 2, device=like.device, dtype=like.dtype) / d)
    angle = torch.arange(length, device=like.device)[:, None] * slope
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)


class Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x: Tensor, of: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (
            f(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for f, y in ((self.q, x), (self.k, of), (self.v, of))
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        found: Tensor = self.o(y.transpose(1, 2).flatten(2))
        return found


class Feed(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(d, inner), nn.Linear(inner, d), nn.LayerNorm(d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x + self.fc2(self.fc1(x).relu()))
        return found


class EncoderLayer(nn.Module):
    def __init__(self, d: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attn, self.norm1, self.feed = Attention(d, heads), nn.LayerNorm(d), Feed(d, inner)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        found: Tensor = self.feed(self.norm1(x + self.attn(x, x, keep)))
        return found


class DecoderLayer(nn.Module):
    def __init__(self, d: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attn, self.cross = Attention(d, heads), Attention(d, heads)
        self.norm1, self.norm2, self.feed = nn.LayerNorm(d), nn.LayerNorm(d), Feed(d, inner)

    def forward(self, x: Tensor, of: Tensor, keep: Tensor) -> Tensor:
        x = self.norm1(x + self.attn(x, x, None))
        found: Tensor = self.feed(self.norm2(x + self.cross(x, of, keep)))
        return found


class Transformer(nn.Module):
    def __init__(self, d: int = 512, heads: int = 8, inner: int = 2048, vocab: int = 37_000) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        nn.init.normal_(self.tok.weight, std=0.02)
        each = nn.ModuleDict
        self.encoder = nn.ModuleList(each({"layer": EncoderLayer(d, heads, inner)}) for _ in range(6))
        self.decoder = nn.ModuleList(each({"layer": DecoderLayer(d, heads, inner)}) for _ in range(6))

    def _read(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        found: Tensor = x * x.shape[-1] ** 0.5 + _waves(x.shape[1], x.shape[2], x)
        return found

    def forward(self, source: Tensor, mask: Tensor, given: Tensor) -> Tensor:
        x, y, keep = self._read(source), self._read(given), (mask > 0)[:, None, None, :]
        for layer in self.encoder:
            x = layer["layer"](x, keep)
        for layer in self.decoder:
            y = layer["layer"](y, x, keep)
        return F.linear(y, self.tok.weight)


class SelfAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return found


class Experts(nn.Module):
    """The two best experts of each token; an expert has ``room`` tokens, first choices before second ones."""

    def __init__(self, d: int, count: int, inner: int, room: int) -> None:
        super().__init__()
        self.room, self.router = room, nn.Linear(d, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, d, inner) * d**-0.5)
        self.down = nn.Parameter(torch.randn(count, inner, d) * inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        flat, (count, d, _), room = x.flatten(0, 1), self.up.shape, self.room
        best, which = self.router(flat).softmax(-1).topk(2)
        best = best / best.sum(1, keepdim=True)
        chosen = which.T.flatten()
        taken = F.one_hot(chosen, count)
        place = (taken.cumsum(0) * taken).sum(1) - 1
        at = torch.where(place < room, chosen * room + place, count * room)
        token = torch.cat([flat, flat])
        slots = token.new_zeros(count * room + 1, d).index_copy(0, at, token)[: count * room]
        y = F.gelu(slots.unflatten(0, (count, room)) @ self.up) @ self.down
        y = torch.cat([y.flatten(0, 1), y.new_zeros(1, d)])[at] * best.T.reshape(-1, 1)
        return (y[: len(flat)] + y[len(flat) :]).view_as(x)


class MoELayer(nn.Module):
    def __init__(self, number: int, d: int, heads: int, inner: int, count: int, room: int) -> None:
        super().__init__()
        self.ln1, self.attn, self.ln2 = nn.LayerNorm(d), SelfAttention(d, heads), nn.LayerNorm(d)
        if number % 2:
            self.experts = Experts(d, count, inner, room)
        else:
            self.fc, self.proj = nn.Linear(d, inner), nn.Linear(inner, d)
        self.dense = number % 2 == 0

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        y = self.ln2(x)
        y = self.proj(F.gelu(self.fc(y))) if self.dense else self.experts(y)
        return x + y


class MoE(nn.Module):
    def __init__(self, room: int, d: int = 512, vocab: int = 32_000, length: int = 2048) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(length, d) * 0.02)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.h = nn.ModuleList(MoELayer(i, d, 8, 2048, 8, room) for i in range(6))
        self.norm = nn.LayerNorm(d)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for layer in self.h:
            x = layer(x)
        return F.linear(self.norm(x), self.tok.weight)
