"""Twins of models of lists, tables and graphs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DCN(nn.Module):
    def __init__(self, rows: int, d: int = 39, wide: int = 768) -> None:
        super().__init__()
        width = 13 + 26 * d
        each = nn.ModuleDict
        self.table = nn.ModuleList(each({"rows": nn.Embedding(rows, d)}) for _ in range(26))
        self.cross = nn.ModuleList(each({"fc": nn.Linear(width, width)}) for _ in range(3))
        self.deep = nn.ModuleList(each({"fc": nn.Linear(wide if i else width, wide)}) for i in range(3))
        self.head = nn.Linear(width + wide, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x0 = torch.cat([dense, *(each["rows"](ids[:, i]) for i, each in enumerate(self.table))], 1)
        x = y = x0
        for each in self.cross:
            x = x + x0 * each["fc"](x)
        for each in self.deep:
            y = each["fc"](y).relu()
        found: Tensor = self.head(torch.cat([x, y], 1))[:, 0]
        return found


class _ItemAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x: Tensor, of: Tensor) -> Tensor:
        q, k, v = (
            f(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for f, y in ((self.q, x), (self.k, of), (self.v, of))
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class _ItemLayer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(d, 1e-8), nn.LayerNorm(d, 1e-8), _ItemAttention(d, heads)
        self.feed = nn.ModuleDict({"fc1": nn.Linear(d, d), "fc2": nn.Linear(d, d)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = self.norm2(y + self.attn(y, x))
        return x + self.feed["fc2"](self.feed["fc1"](x).relu())


class SASRec(nn.Module):
    def __init__(self, items: int = 3417, d: int = 50, longest: int = 512) -> None:
        super().__init__()
        self.item, self.places = nn.Embedding(items, d), nn.Parameter(torch.randn(longest, d) * 0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        self.h, self.norm = nn.ModuleList(_ItemLayer(d, 1) for _ in range(2)), nn.LayerNorm(d, 1e-8)

    def forward(self, ids: Tensor, wanted: Tensor, other: Tensor) -> Tensor:
        x = self.item(ids)
        x = x * x.shape[2] ** 0.5 + self.places[: ids.shape[1]]
        for layer in self.h:
            x = layer(x)
        x = self.norm(x)
        return torch.stack([(x * self.item(each)).sum(2) for each in (wanted, other)], 2)


class _EdgeAttention(nn.Module):
    def __init__(self, c: int, heads: int, out: int) -> None:
        super().__init__()
        self.fc = nn.Linear(c, heads * out, bias=False)
        self.left, self.right = (nn.Parameter(torch.randn(heads, out) * out**-0.5) for _ in range(2))
        self.heads = heads

    def forward(self, x: Tensor, source: Tensor, sink: Tensor) -> Tensor:
        h = self.fc(x).unflatten(1, (self.heads, -1))
        e = F.leaky_relu((h * self.left).sum(2)[source] + (h * self.right).sum(2)[sink], 0.2)
        rows = sink[:, None].expand_as(e)
        top = e.new_full((len(x), self.heads), -1e9).scatter_reduce(0, rows, e.detach(), "amax")
        e = (e - top[sink]).exp()
        total = e.new_zeros(len(x), self.heads).index_add(0, sink, e)
        share = (e / total[sink]).to(h.dtype)
        return torch.zeros_like(h).index_add(0, sink, h[source] * share[..., None])


class GAT(nn.Module):
    def __init__(self, heads: int = 4, width: int = 256) -> None:
        super().__init__()
        wide = heads * width
        self.first, self.second = _EdgeAttention(50, heads, width), _EdgeAttention(wide, heads, width)
        self.third = _EdgeAttention(wide, 6, 121)
        self.bias1, self.bias2, self.bias3 = (nn.Parameter(torch.zeros(n)) for n in (wide, wide, 121))

    def forward(self, x: Tensor, source: Tensor, sink: Tensor) -> Tensor:
        y = F.elu(self.first(x, source, sink).flatten(1) + self.bias1)
        y = F.elu(self.second(y, source, sink).flatten(1) + self.bias2 + y)
        found: Tensor = self.third(y, source, sink).mean(1) + self.bias3
        return found
