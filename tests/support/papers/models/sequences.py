"""Sequences by recurrences, chosen tokens and chosen experts, with PyTorch: a function for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, layernorm, linear, merged, rmsnorm, split_heads


def _segsum(a: Tensor) -> Tensor:
    c = a.cumsum(-1)
    keep = torch.ones(a.shape[-1], a.shape[-1], dtype=torch.bool).tril()
    return (c[..., :, None] - c[..., None, :]).masked_fill(~keep, -torch.inf)


def mamba2(p: Params, ids: Tensor) -> Any:
    def mixer(u: Tensor, n: str) -> Tensor:
        z, xbc, dt = linear(u, p, n + "in").split([8, 14, 2], -1)
        dt, a = F.softplus(dt + p[n + "dt_bias"]), -p[n + "a_log"].exp()
        xbc = F.conv1d(F.pad(xbc.transpose(1, 2), (3, 0)), p[n + "conv.weight"], p[n + "conv.bias"], groups=14)
        x, b, c = F.silu(xbc.transpose(1, 2)).split([8, 3, 3], -1)
        x = x.unflatten(-1, (2, 4))
        state, ys = x.new_zeros(len(x), 2, 4, 3), []
        for t in range(x.shape[1]):  # the recurrence; the model computes it in chunks
            state = state * (dt[:, t] * a).exp()[..., None, None]
            state = state + (x[:, t] * dt[:, t, :, None])[..., None] * b[:, t, None, None]
            ys.append((state * c[:, t, None, None]).sum(-1))
        y = torch.stack(ys, 1) + p[n + "d"][:, None] * x
        return linear(rmsnorm(y.flatten(2) * F.silu(z), p, n + "norm"), p, n + "out")

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        x = x + mixer(rmsnorm(x, p, f"layers.{i}.ln"), f"layers.{i}.mixer.")
    return linear(rmsnorm(x, p, "last"), p, "head")


def deltanet(p: Params, ids: Tensor) -> Any:
    def mixer(x: Tensor, n: str) -> Tensor:
        def short(u: Tensor, m: str) -> Tensor:
            u = F.conv1d(F.pad(u.transpose(1, 2), (2, 0)), p[n + m + "_conv.conv.weight"], groups=u.shape[-1])
            return split_heads(F.silu(u.transpose(1, 2)), 2)

        q, k, v = (short(linear(x, p, n + m), m) for m in "qkv")
        q, k = (u * torch.rsqrt((u * u).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
        beta = torch.sigmoid(linear(x, p, n + "b")).transpose(1, 2)
        a = (-p[n + "a_log"].exp() * F.softplus(linear(x, p, n + "a") + p[n + "dt_bias"])).transpose(1, 2)
        s, ys = x.new_zeros(len(x), 2, 3, 6), []
        for t in range(x.shape[1]):
            s = s * a[:, :, t, None, None].exp()
            error = v[:, :, t] - torch.einsum("bhk,bhkv->bhv", k[:, :, t], s)
            s = s + torch.einsum("bhk,bhv->bhkv", k[:, :, t], beta[:, :, t, None] * error)
            ys.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t] * 3**-0.5, s))
        y = rmsnorm(torch.stack(ys, 1), p, n + "norm")
        return linear((y * F.silu(linear(x, p, n + "g").unflatten(-1, (2, 6)))).flatten(2), p, n + "out")

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        x = x + mixer(rmsnorm(x, p, f"layers.{i}.ln"), f"layers.{i}.mixer.")
    return linear(rmsnorm(x, p, "last"), p, "head")


def nsa(p: Params, ids: Tensor) -> Any:
    T, size, blocks = 12, 3, 4
    rows, block = torch.arange(T), torch.arange(blocks)

    def attend(x: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(u, 2) for u in linear(x, p, n + "qkv").chunk(3, -1))
        kc, vc = ((u.unflatten(2, (blocks, size)) + p[n + "pos"]).flatten(3) for u in (k, v))
        kc, vc = linear(kc, p, n + "k_pool"), linear(vc, p, n + "v_pool")
        seen = (block + 1) * size - 1 <= rows[:, None]
        scores = (q @ kc.transpose(2, 3) * 4**-0.5).masked_fill(~seen, -1e9)
        a = scores.softmax(-1) * seen
        own = rows[:, None] // size
        rank = torch.where(block <= own, a.sum(1), -1.0)
        rank = torch.where(block == own, 1e9, rank)
        picked = torch.zeros(len(x), T, blocks).scatter(2, rank.topk(2).indices, 1.0) > 0
        causal = torch.ones(T, T, dtype=torch.bool).tril()
        full = F.scaled_dot_product_attention(q, k, v, picked.repeat_interleave(size, 2)[:, None] & causal)
        near = causal & (rows[:, None] - rows < 3)
        local = F.scaled_dot_product_attention(q, k, v, near)
        g = torch.sigmoid(linear(x, p, n + "gate")).unflatten(-1, (3, 2)).permute(2, 0, 3, 1)[..., None]
        return linear(merged(g[0] * (a @ vc) + g[1] * full + g[2] * local), p, n + "out")

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        x = x + attend(rmsnorm(x, p, f"layers.{i}.ln"), f"layers.{i}.attn.")
    return linear(rmsnorm(x, p, "last"), p, "head")


def mod(p: Params, ids: Tensor) -> Any:
    def body(x: Tensor, at: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(u, 2) for u in linear(layernorm(x, p, n + "ln1"), p, n + "attn.qkv").chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, (at[:, None] <= at[:, :, None])[:, None])
        y = linear(merged(y), p, n + "attn.out")
        return y + linear(F.gelu(linear(layernorm(x + y, p, n + "ln2"), p, n + "up")), p, n + "down")

    x = p["tok.weight"][ids.long()]
    B, T, D = x.shape
    x = x + body(x, torch.arange(T).expand(B, T), "layers.0.full.")
    w = linear(x, p, "layers.1.routed.router")[..., 0]
    at = w.topk(4, -1).indices.sort(-1).values
    index = at[..., None].expand(-1, -1, D)
    y = w.gather(1, at)[..., None] * body(x.gather(1, index), at, "layers.1.routed.block.")
    return linear(layernorm(x.scatter_add(1, index, y.to(x.dtype)), p, "last"), p, "head")


def peer(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    for i in range(2):
        n = f"layers.{i}.peer."
        h = layernorm(x, p, f"layers.{i}.ln")
        q = linear(h, p, n + "query").unflatten(-1, (2, 2, -1))
        (s1, i1), (s2, i2) = (torch.einsum("bthd,hnd->bthn", q[:, :, a], p[n + "keys"][a]).topk(2) for a in (0, 1))
        both, index = (s1[..., None] + s2[..., None, :]).flatten(3), (i1[..., None] * 4 + i2[..., None, :]).flatten(3)
        best, at = both.topk(2)
        expert = index.gather(-1, at)
        hidden = F.gelu(torch.einsum("btd,bthkd->bthk", h, p[n + "down.weight"][expert]))
        x = x + torch.einsum("bthk,bthkd->btd", hidden * best.softmax(-1), p[n + "up.weight"][expert])
    return linear(layernorm(x, p, "last"), p, "head")


def lru(p: Params, x: Tensor) -> Any:
    x = linear(x, p, "encoder")
    for i in range(2):
        n = f"layers.{i}.lru."
        u = layernorm(x, p, f"layers.{i}.ln")
        pole = torch.polar(torch.exp(-torch.exp(p[n + "nu"])), torch.exp(p[n + "theta"]))
        b, c = (torch.complex(p[n + m][0], p[n + m][1]) for m in "bc")
        drive = torch.exp(p[n + "gamma"]) * (u.to(b.dtype) @ b.T)
        h, ys = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = pole * h + drive[:, t]
            ys.append((h @ c.T).real)
        y = F.gelu(torch.stack(ys, 1) + p[n + "d"] * u)
        x = x + F.glu(linear(y, p, f"layers.{i}.glu"))
    return linear(x.mean(1), p, "head")


def hrm(p: Params, ids: Tensor) -> Any:
    def unit(x: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(u, 2) for u in linear(x, p, n + ".qkv").chunk(3, -1))
        x = rmsnorm(x + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, n + ".out"))
        a, b = linear(x, p, n + ".gate_up").chunk(2, -1)
        return rmsnorm(x + linear(F.silu(a) * b, p, n + ".down"))

    x = p["tok.weight"][ids.long()] * 6**0.5
    high, low = (p[n].detach().expand_as(x) for n in ("start_high", "start_low"))
    with torch.no_grad():
        for i in range(3):
            low = unit(low + high + x, "low")
            if i == 1:
                high = unit(high + low, "high")
    low = unit(low + high + x, "low")
    high = unit(high + low, "high")
    return linear(high, p, "head"), linear(high[:, 0], p, "q")


def reformer(p: Params, ids: Tensor, turns: Tensor) -> Tensor:
    """Over all pairs: what sorting and chunks leave out is masked."""
    steps = ids.shape[1]
    place = torch.cat([p["row"].expand(4, 4, 4), p["column"].expand(4, 4, 4)], 2).view(steps, 8)
    a = b = p["tok.weight"][ids.long()] + place
    i, j = torch.arange(steps)[:, None], torch.arange(steps)

    def attention(x: Tensor, n: str) -> Tensor:
        qk, v = (split_heads(linear(x, p, n + each), 2) for each in (".qk", ".v"))
        k, found, totals = qk / (qk.norm(dim=-1, keepdim=True) + 1e-6), [], []
        for turn in turns:
            turned = qk.detach() @ turn
            bucket = torch.cat([turned, -turned], -1).argmax(-1)
            chunk = (bucket * steps + j).argsort(-1).argsort(-1) // 4
            mine, other = chunk[..., :, None], chunk[..., None, :]
            same = (i > j) & (bucket[..., :, None] == bucket[..., None, :])
            dots = torch.where(same, qk @ k.mT / 2, torch.where(i == j, -1e5, -1e9).to(qk.dtype))
            dots = dots.masked_fill((mine != other) & ((mine - 1) % (steps // 4) != other), -math.inf)
            totals.append(dots.logsumexp(-1, keepdim=True))
            found.append((dots - totals[-1]).exp() @ v)
        mixed = (torch.stack(totals).softmax(0) * torch.stack(found)).sum(0)
        return linear(merged(mixed), p, n + ".out")

    for layer in range(2):
        n = f"layer.{layer}."
        a = a + attention(layernorm(b, p, n + "n0"), n + "attn")
        b = b + linear(F.gelu(linear(layernorm(a, p, n + "n1"), p, n + "up")), p, n + "down")
    return linear(layernorm(torch.cat([a, b], 2), p, "last"), p, "head")
