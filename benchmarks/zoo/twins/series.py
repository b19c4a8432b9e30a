"""Twins of the Temporal Fusion Transformer and of xDeepFM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Grn(nn.Module):
    def __init__(self, d: int, out: int, within: int = 0) -> None:
        super().__init__()
        self.fc1, self.fc2, self.gate = nn.Linear(d, out), nn.Linear(out, out), nn.Linear(out, 2 * out)
        self.skip = nn.Linear(d, out) if d != out else nn.Identity()
        self.norm = nn.LayerNorm(out)
        if within:
            self.context = nn.Linear(within, out, bias=False)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        y = self.fc1(x) if context is None else self.fc1(x) + self.context(context)
        found: Tensor = self.norm(self.skip(x) + F.glu(self.gate(self.fc2(F.elu(y))), -1))
        return found


class _Gate(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.gate, self.norm = nn.Linear(d, 2 * d), nn.LayerNorm(d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = self.norm(x + F.glu(self.gate(y), -1))
        return found


class _Selected(nn.Module):
    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.fc1, self.context, self.fc2 = nn.Linear(n * d, d), nn.Linear(d, d, bias=False), nn.Linear(d, n)
        self.gate, self.skip, self.norm = nn.Linear(n, 2 * n), nn.Linear(n * d, n), nn.LayerNorm(n)
        self.each = nn.ModuleList(_Grn(d, d) for _ in range(n))

    def forward(self, xs: Sequence[Tensor], context: Tensor) -> Tensor:
        together = torch.cat(list(xs), 2)
        a = F.elu(self.fc1(together) + self.context(context)[:, None])
        weight = self.norm(F.glu(self.gate(self.fc2(a)), -1) + self.skip(together)).softmax(2)
        ys = torch.stack([layer(x) for layer, x in zip(self.each, xs, strict=True)], 3)
        return (ys * weight[:, :, None]).sum(3)


class _Interpretable(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d // heads)
        self.out = nn.Linear(d // heads, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k))
        v = self.v(x)[:, None].expand(-1, self.heads, -1, -1)
        found: Tensor = self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).mean(1))
        return found


class TFT(nn.Module):
    def __init__(self, past: int, d: int, heads: int = 4, places: int = 369) -> None:
        super().__init__()
        self.past = past
        self.place, self.static = nn.Embedding(places, d), _Grn(d, d)
        self.for_select, self.for_enrich, self.for_h, self.for_c = (_Grn(d, d) for _ in range(4))
        self.known, self.seen = nn.ModuleList(nn.Linear(1, d) for _ in range(4)), nn.Linear(1, d)
        self.select_past, self.select_next = _Selected(5, d), _Selected(4, d)
        self.encoder, self.decoder = nn.LSTM(d, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
        self.near, self.far, self.out, self.head = _Gate(d), _Gate(d), _Gate(d), nn.Linear(d, 3)
        self.enrich, self.attn, self.feed = _Grn(d, d, d), _Interpretable(d, heads), _Grn(d, d)

    def forward(self, known: Tensor, seen: Tensor, place: Tensor) -> Tensor:
        static = self.static(self.place(place))
        context = self.for_select(static)
        given = [layer(known[:, :, i : i + 1]) for i, layer in enumerate(self.known)]
        x = self.select_past([*(y[:, : self.past] for y in given), self.seen(seen)], context)
        ahead = self.select_next([y[:, self.past :] for y in given], context)
        state = (self.for_h(static)[None], self.for_c(static)[None])
        y, state = self.encoder(x, tuple(s.to(x.dtype) for s in state))
        z, _ = self.decoder(ahead, state)
        near = self.near(torch.cat([x, ahead], 1), torch.cat([y, z], 1))
        rich = self.enrich(near, self.for_enrich(static)[:, None])
        far = self.far(rich, self.attn(rich))
        found: Tensor = self.head(self.out(near, self.feed(far))[:, self.past :])
        return found


class _Cin(nn.Module):
    def __init__(self, fields: int, wide: int, layers: int) -> None:
        super().__init__()
        counts = [fields] + [wide // 2] * (layers - 1)
        self.layer = nn.ModuleList(nn.ModuleDict({"conv": nn.Conv1d(n * fields, wide, 1)}) for n in counts)

    def forward(self, x: Tensor) -> Tensor:
        y, parts = x, []
        for i, each in enumerate(self.layer):
            out = each["conv"](torch.einsum("bhd,bmd->bhmd", y, x).flatten(1, 2)).relu()
            if i < len(self.layer) - 1:
                y, out = out.chunk(2, 1)
            parts.append(out.sum(2))
        return torch.cat(parts, 1)


class XDeepFM(nn.Module):
    def __init__(self, rows: int, d: int = 10, wide: int = 200, hidden: int = 400, fields: int = 39) -> None:
        super().__init__()
        self.table, self.single = nn.Embedding(fields * rows, d), nn.Embedding(fields * rows, 1)
        sizes = [fields * d, hidden, hidden]
        self.deep = nn.ModuleList(nn.ModuleDict({"fc": nn.Linear(n, m)}) for n, m in pairwise(sizes))
        self.cin, self.cross = _Cin(fields, wide, 3), nn.Linear(2 * wide, 1, bias=False)
        self.head = nn.Linear(hidden, 1)
        self.register_buffer("begin", rows * torch.arange(fields), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        at = ids + self.begin
        x = self.table(at)
        y = x.flatten(1)
        for each in self.deep:
            y = each["fc"](y).relu()
        found: Tensor = (self.cross(self.cin(x)) + self.head(y))[:, 0] + self.single(at).sum((1, 2))
        return found
