"""Models of sequences of tokens with PyTorch: a function of the parameters by name and the inputs for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, layernorm, linear, merged, rmsnorm, rotated, split_heads


def mamba(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    for i in range(2):
        m = f"layers.{i}.mixer."
        h = rmsnorm(x, p, f"layers.{i}.norm")
        u, z = linear(h, p, m + "in_proj").chunk(2, -1)
        E = u.shape[-1]
        u = F.silu(
            F.conv1d(F.pad(u.transpose(1, 2), (3, 0)), p[m + "conv.weight"], p[m + "conv.bias"], groups=E).transpose(
                1, 2
            )
        )
        dbc = linear(u, p, m + "x_proj")
        dt, b, c = dbc.split([2, 4, 4], -1)
        dt = F.softplus(linear(dt, p, m + "dt_proj"))
        A = -torch.exp(p[m + "log_a"])
        st = torch.zeros(x.shape[0], E, 4, dtype=x.dtype)
        ys = []
        for t in range(x.shape[1]):
            st = torch.exp(dt[:, t, :, None] * A) * st + dt[:, t, :, None] * b[:, t, None, :] * u[:, t, :, None]
            ys.append((st * c[:, t, None, :]).sum(-1))
        y = (torch.stack(ys, 1) + u * p[m + "skip"]) * F.silu(z)
        x = x + linear(y, p, m + "out_proj")
    return rmsnorm(x, p, "norm_f") @ p["tok.weight"].T


def retnet(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    T = x.shape[1]
    H = 2
    for i in range(2):
        r = f"layers.{i}.retention."
        h = layernorm(x, p, f"layers.{i}.ln1")
        D = h.shape[-1]
        n = D // H
        q, k, v = (split_heads(linear(h, p, r + a), H) for a in "qkv")
        pos = torch.arange(T, dtype=x.dtype)
        pair = torch.arange(n) // 2
        ang = pos[:, None] * 10000.0 ** (-2.0 * pair.to(x.dtype) / n)

        def rot(a: Tensor, ang: Tensor = ang) -> Tensor:
            t = torch.stack([-a[..., 1::2], a[..., ::2]], -1).reshape(a.shape)
            return a * ang.cos() + t * ang.sin()

        dec = torch.log(1 - 2.0 ** (-5 - torch.arange(H, dtype=x.dtype)))
        dist = pos[:, None] - pos
        mask = torch.where(dist >= 0, torch.exp(dist.clamp(min=0) * dec[:, None, None]), torch.zeros((), dtype=x.dtype))
        mask = mask / mask.sum(-1, keepdim=True).sqrt()
        s = rot(q) @ rot(k * n**-0.5).transpose(-1, -2) * mask
        s = s / s.detach().sum(-1, keepdim=True).abs().clamp(min=1)
        y = rmsnorm((s @ v).transpose(1, 2)).reshape(x.shape)
        x = x + linear(F.silu(linear(h, p, r + "g")) * y, p, r + "out")
        x = x + linear(F.gelu(linear(layernorm(x, p, f"layers.{i}.ln2"), p, f"layers.{i}.fc1")), p, f"layers.{i}.fc2")
    return linear(layernorm(x, p, "last"), p, "head")


def deepseek(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    x.shape[1]

    def expert(h, n):
        return linear(F.silu(linear(h, p, n + ".gate")) * linear(h, p, n + ".up"), p, n + ".down")

    for i in range(2):
        a = f"layers.{i}.attn."
        h = rmsnorm(x, p, f"layers.{i}.ln1")
        q = split_heads(linear(rmsnorm(linear(h, p, a + "q_a"), p, a + "q_norm"), p, a + "q_b"), 2)
        kv = linear(h, p, a + "kv_a")
        c = split_heads(linear(rmsnorm(kv[..., :8], p, a + "kv_norm"), p, a + "kv_b"), 2)
        sh = rotated(kv[..., 8:][:, None]).expand(-1, 2, -1, -1)
        q = torch.cat([q[..., :4], rotated(q[..., 4:])], -1)
        k = torch.cat([c[..., :4], sh], -1)
        x = x + linear(merged(F.scaled_dot_product_attention(q, k, c[..., 4:], is_causal=True)), p, a + "o")
        h = rmsnorm(x, p, f"layers.{i}.ln2")
        m = f"layers.{i}.mlp."
        s = torch.sigmoid(linear(h, p, m + "router"))
        v, ix = s.topk(2, -1)
        w = torch.zeros_like(s).scatter(-1, ix, v)
        w = w / w.sum(-1, keepdim=True)
        y = expert(h, m + "shared")
        for e in range(4):
            y = y + w[..., e : e + 1] * expert(h, m + f"experts.{e}.expert")
        x = x + y
    return linear(rmsnorm(x, p, "last"), p, "head")


def gemma2(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()] * 4.0
    T = x.shape[1]

    def N(x, n):
        return rmsnorm(x) * (1 + p[n + ".weight"])

    for i in range(2):
        b = f"layers.{i}."
        a = b + "attn."
        h = N(x, b + "n1")
        q = rotated(linear(h, p, a + "q").view(*h.shape[:2], 4, 4).transpose(1, 2))
        k = rotated(linear(h, p, a + "k").view(*h.shape[:2], 2, 4).transpose(1, 2))
        v = linear(h, p, a + "v").view(*h.shape[:2], 2, 4).transpose(1, 2)
        k = k.repeat_interleave(2, 1)
        v = v.repeat_interleave(2, 1)
        s = q @ k.transpose(-1, -2) * 0.5
        s = 5 * torch.tanh(s / 5)
        d = torch.arange(T)[:, None] - torch.arange(T)
        W = 3 if i % 2 == 0 else 64
        s = s.masked_fill(~((d >= 0) & (d < W)), -1e30)
        x = x + N(linear(merged(s.softmax(-1) @ v), p, a + "o"), b + "n2")
        h = N(x, b + "n3")
        x = x + N(
            linear(F.gelu(linear(h, p, b + "gate"), approximate="tanh") * linear(h, p, b + "up"), p, b + "down"),
            b + "n4",
        )
    return 3 * torch.tanh(N(x, "last") @ p["tok.weight"].T / 3)


def ngpt(p: Params, ids: Tensor) -> Any:
    def u_(x):
        return x / x.norm(dim=-1, keepdim=True)

    h = u_(p["tok.weight"][ids.long()])
    n = 8
    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(h, p, b + "qkv").chunk(3, -1))
        a = u_(
            linear(
                merged(
                    F.scaled_dot_product_attention(
                        u_(q) * p[b + "sq"], u_(k) * p[b + "sq"], v, is_causal=True, scale=n**0.5
                    )
                ),
                p,
                b + "o",
            )
        )
        h = u_(h + p[b + "alpha_a"].abs() * (a - h))
        m = u_(
            linear(
                linear(h, p, b + "up") * p[b + "su"] * F.silu(linear(h, p, b + "gate") * p[b + "sv"] * 4.0),
                p,
                b + "down",
            )
        )
        h = u_(h + p[b + "alpha_m"].abs() * (m - h))
    return linear(h, p, "head") * p["sz"]


def rwkv(p: Params, ids: Tensor) -> Any:
    x = layernorm(p["tok.weight"][ids.long()], p, "ln0")
    B, T, D = x.shape

    def sh(x):
        return F.pad(x, (0, 0, 1, 0))[:, :-1]

    for i in range(2):
        b = f"layers.{i}."
        h = layernorm(x, p, b + "ln1")
        a = b + "att."

        def mx(h, n):
            return h * p[n + ".mu"] + sh(h) * (1 - p[n + ".mu"])

        k = linear(mx(h, a + "mk"), p, a + "key")
        v = linear(mx(h, a + "mv"), p, a + "value")
        r = torch.sigmoid(linear(mx(h, a + "mr"), p, a + "receptance"))
        w = -p[a + "decay"].exp()
        A = torch.zeros(B, D, dtype=x.dtype)
        Bm = A.clone()
        P = torch.full((B, D), -1e30, dtype=x.dtype)
        ys = []
        for t in range(T):
            q = torch.maximum(P, p[a + "first"] + k[:, t])
            e1 = (P - q).exp()
            e2 = (p[a + "first"] + k[:, t] - q).exp()
            ys.append((e1 * A + e2 * v[:, t]) / (e1 * Bm + e2))
            q = torch.maximum(P + w, k[:, t])
            e1 = (P + w - q).exp()
            e2 = (k[:, t] - q).exp()
            A, Bm, P = e1 * A + e2 * v[:, t], e1 * Bm + e2, q
        x = x + linear(r * torch.stack(ys, 1), p, a + "out")
        h = layernorm(x, p, b + "ln2")
        f = b + "ffn."
        x = x + torch.sigmoid(linear(mx(h, f + "mr"), p, f + "receptance")) * linear(
            F.relu(linear(mx(h, f + "mk"), p, f + "key")) ** 2, p, f + "value"
        )
    return linear(layernorm(x, p, "last"), p, "head")


def griffin(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    B, T, D = x.shape
    for i in range(2):
        b = f"layers.{i}."
        h = rmsnorm(x, p, b + "ln1")
        r = b + "rec."
        y = F.gelu(linear(h, p, r + "y"))
        u = F.conv1d(
            F.pad(linear(h, p, r + "x").transpose(1, 2), (3, 0)), p[r + "conv.weight"], p[r + "conv.bias"], groups=D
        ).transpose(1, 2)
        g = torch.sigmoid(linear(u, p, r + "lru.gate_a"))
        ii = torch.sigmoid(linear(u, p, r + "lru.gate_x"))
        la = -8 * F.softplus(p[r + "lru.lambda"]) * g
        a = la.exp()
        s = (1 - (2 * la).exp()).sqrt() * (ii * u)
        H = torch.zeros(B, D, dtype=x.dtype)
        ys = []
        for t in range(T):
            H = a[:, t] * H + s[:, t]
            ys.append(H)
        x = x + linear(torch.stack(ys, 1) * y, p, r + "out")
        h = rmsnorm(x, p, b + "ln2")
        x = x + linear(F.gelu(linear(h, p, b + "gate")) * linear(h, p, b + "up"), p, b + "down")
    return rmsnorm(x, p, "last") @ p["tok.weight"].T


def xlstm(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    T = x.shape[1]
    for l in range(2):
        h = layernorm(x, p, f"layers.{l}.ln")
        c = f"layers.{l}.cell."
        q, k, v = (split_heads(u, 2) for u in linear(h, p, c + "qkv").chunk(3, -1))
        n = q.shape[-1]
        i = linear(h, p, c + "i").transpose(1, 2)
        f = F.logsigmoid(linear(h, p, c + "f").transpose(1, 2)).cumsum(-1)
        d = f[..., :, None] - f[..., None, :] + i[..., None, :]
        d = d.masked_fill(~torch.ones(T, T, dtype=bool).tril(), -1e30)
        m = d.amax(-1, keepdim=True)
        s = q @ (k * n**-0.5).transpose(-1, -2) * torch.exp(d - m)
        y = merged(s / (torch.maximum(s.sum(-1, keepdim=True).abs(), torch.exp(-m)) + 1e-6) @ v)
        x = x + linear(y * torch.sigmoid(linear(h, p, c + "o")), p, c + "out")
    return linear(layernorm(x, p, "last"), p, "head")


def diff_transformer(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    for i in range(2):
        a = f"layers.{i}.attn."
        h = rmsnorm(x, p, f"layers.{i}.ln1", 1e-5)
        B, T, _D = h.shape
        n = 4
        q = linear(h, p, a + "q").view(B, T, 2, 2, n).permute(3, 0, 2, 1, 4)
        k = linear(h, p, a + "k").view(B, T, 2, 2, n).permute(3, 0, 2, 1, 4)
        v = split_heads(linear(h, p, a + "v"), 2)
        e = torch.exp((p[a + "lq"] * p[a + "lk"]).sum(-1))
        st = 0.8 - 0.6 * math.exp(-0.3 * i)
        lam = e[0] - e[1] + st

        def at(q: Tensor, k: Tensor, v: Tensor = v) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        y = rmsnorm(at(q[0], k[0]) - lam * at(q[1], k[1]), p, a + "norm", 1e-5) * (1 - st)
        x = x + linear(merged(y), p, a + "out")
        h = rmsnorm(x, p, f"layers.{i}.ln2", 1e-5)
        b = f"layers.{i}."
        x = x + linear(F.silu(linear(h, p, b + "gate")) * linear(h, p, b + "up"), p, b + "down")
    return linear(rmsnorm(x, p, "last", 1e-5), p, "head")
