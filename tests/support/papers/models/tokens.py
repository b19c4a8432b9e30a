"""Language models without softmax attention, or of few bits, with PyTorch: a function for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, layernorm, linear, merged, rmsnorm, rotated, split_heads


def hyena(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    T, D = x.shape[1:]
    b = "layers.0."
    u = linear(layernorm(x, p, b + "ln1"), p, b + "mixer.in").transpose(1, 2)
    u = F.conv1d(F.pad(u, (2, 0)), p[b + "mixer.short.weight"], p[b + "mixer.short.bias"], groups=3 * D)
    q, k, v = u.chunk(3, 1)
    dtype = x.dtype
    at = torch.linspace(0, 1, T, dtype=dtype)[:, None]
    angle = 2 * math.pi * torch.arange(T, dtype=dtype)[:, None] / T * torch.linspace(1e-4, 1, 2, dtype=dtype)
    h, f = torch.cat([at, angle.cos(), -angle.sin()], 1), b + "mixer.filter."
    h = torch.sin(p[f + "freq"] * linear(h, p, f + "l1"))
    h = linear(torch.sin(p[f + "freq"] * linear(h, p, f + "l2")), p, f + "l3")
    decay = torch.linspace(math.log(0.01) / 1.5, math.log(0.01) / 0.3, D, dtype=dtype)
    h = (h * torch.exp(-at * decay.abs())).T
    y = v * k
    wide = y.float() if y.dtype is torch.bfloat16 else y
    far = torch.fft.irfft(torch.fft.rfft(wide, 2 * T) * torch.fft.rfft(h.to(wide.dtype), 2 * T), 2 * T)[..., :T]
    y = (far + y * p[b + "mixer.skip"][:, None]) * q
    x = x + linear(y.transpose(1, 2), p, b + "mixer.out")
    y = F.gelu(linear(layernorm(x, p, b + "ln2"), p, b + "fc1"), approximate="tanh")
    return linear(layernorm(x + linear(y, p, b + "fc2"), p, "last"), p, "head")


def ttt(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    B, T, D = x.shape
    h = layernorm(x, p, "ln1")
    k, v, q = (linear(h, p, f"mixer.{n}") for n in "kvq")
    rate = torch.sigmoid(linear(h, p, "mixer.rate"))
    w = p["mixer.start"].expand(B, D, D)
    if not w.requires_grad:
        w = w.clone().requires_grad_()
    ys = []
    with torch.enable_grad():
        for t in range(0, T, 2):
            a, b, c = (u[:, t : t + 2] for u in (k, v, q))
            loss = ((a + layernorm(a @ w, p, "mixer.inner") - b) ** 2 * rate[:, t : t + 2] / D).sum()
            w = w - torch.autograd.grad(loss, w, create_graph=True)[0]
            ys.append(c + layernorm(c @ w, p, "mixer.inner"))
    x = x + linear(torch.cat(ys, 1), p, "mixer.out")
    x = x + linear(F.gelu(linear(layernorm(x, p, "ln2"), p, "fc1")), p, "fc2")
    y = linear(layernorm(x, p, "last"), p, "head")
    return y if p["mixer.start"].requires_grad else y.detach()


def mingru(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    for i in range(2):
        b = f"layers.{i}."
        c = F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), p[b + "conv.weight"], p[b + "conv.bias"], groups=x.shape[-1])
        x = x + c.transpose(1, 2)
        hidden, gate = linear(rmsnorm(x, p, b + "n1"), p, b + "gru.hidden_gate").chunk(2, -1)
        values = -F.softplus(-gate) + torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
        a = torch.cumsum(-F.softplus(gate), 1)
        x = x + linear((a + torch.logcumsumexp(values - a, 1)).exp(), p, b + "gru.out")
        x = x + linear(F.gelu(linear(rmsnorm(x, p, b + "n2"), p, b + "fc1")), p, b + "fc2")
    return linear(rmsnorm(x, p, "last"), p, "head")


def bitnet(p: Params, ids: Tensor) -> Any:
    def bit_linear(x: Tensor, n: str) -> Tensor:
        w, x = p[n + ".weight"], rmsnorm(x)
        scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        x = x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()
        mean = 1 / w.abs().mean().clamp(min=1e-5)
        return F.linear(x, w + ((w * mean).round().clamp(-1, 1) / mean - w).detach())

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in bit_linear(x, b + "qkv").chunk(3, -1))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + bit_linear(merged(y), b + "out")
        gate, up = bit_linear(x, b + "gate_up").chunk(2, -1)
        x = x + bit_linear(F.relu(gate) ** 2 * up, b + "down")
    return rmsnorm(x, p, "norm") @ p["tok.weight"].T


def fox(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()]
    for i in range(2):
        b = f"layers.{i}."
        h = rmsnorm(x, p, b + "n1")
        q, k, v = (split_heads(linear(h, p, f"{b}attn.w.{j}"), 2) for j in range(3))
        kept = torch.cumsum(F.logsigmoid(linear(h, p, b + "attn.forget")).transpose(1, 2), -1)
        hidden = torch.ones(2 * (x.shape[1],), dtype=torch.bool).triu(1)
        bias = (kept[..., None] - kept[..., None, :]).masked_fill(hidden, float("-inf"))
        q, k = rmsnorm(q, p, b + "attn.q_norm"), rmsnorm(k, p, b + "attn.k_norm")
        y = rmsnorm(merged(F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype))), p, b + "attn.norm")
        x = x + linear(y * torch.sigmoid(linear(h, p, b + "attn.gate")), p, b + "attn.out")
        gate, up = linear(rmsnorm(x, p, b + "n2"), p, b + "gate_up").chunk(2, -1)
        x = x + linear(F.silu(gate) * up, p, b + "down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def rwkv7(p: Params, ids: Tensor) -> Any:
    def low(x: Tensor, n: str) -> Tensor:
        return linear(torch.tanh(linear(x, p, n + ".down")), p, n + ".up")

    def before(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 1, -1))

    x = layernorm(p["tok.weight"][ids.long()], p, "ln0")
    B, T, D = x.shape
    for i in range(2):
        b, n = f"layers.{i}.", f"layers.{i}.att."
        h = layernorm(x, p, b + "ln1")
        r, w, k, v, a, g = (h + (before(h) - h) * p[n + "mix"][j] for j in range(6))
        w = torch.exp(-0.606531 * torch.sigmoid(low(w, n + "decay")))
        r, k, v = linear(r, p, n + "r"), linear(k, p, n + "k"), linear(v, p, n + "v")
        a = torch.sigmoid(low(a, n + "rate"))
        gate = linear(torch.sigmoid(linear(g, p, n + "g1")), p, n + "g2")
        removed = (k * p[n + "k_k"]).view(B, T, 2, -1)
        removed = removed / (removed.norm(dim=-1, keepdim=True) + 1e-6)
        k = k * (1 + (a - 1) * p[n + "k_a"])
        r, w, k, v, a = (u.view(B, T, 2, -1) for u in (r, w, k, v, a))
        s, ys = torch.zeros(B, 2, D // 2, D // 2, dtype=x.dtype), []
        for t in range(T):
            c = removed[:, t]
            lost = torch.einsum("bhij,bhj->bhi", s, -c)
            s = s * w[:, t, :, None] + lost[..., None] * (c * a[:, t])[:, :, None]
            s = s + v[:, t, ..., None] * k[:, t, :, None]
            ys.append(torch.einsum("bhij,bhj->bhi", s, r[:, t]))
        y = torch.stack(ys, 1).reshape(B * T, D)
        y = F.group_norm(y, 2, p[n + "ln_x.weight"], p[n + "ln_x.bias"], 64e-5).view(B, T, D)
        y = y + ((r * k * p[n + "r_k"]).sum(-1, keepdim=True) * v).flatten(2)
        x = x + linear(y * gate, p, n + "out")
        h = layernorm(x, p, b + "ln2")
        h = h + (before(h) - h) * p[b + "mix"]
        x = x + linear(F.relu(linear(h, p, b + "key")) ** 2, p, b + "value")
    return linear(layernorm(x, p, "last"), p, "head")


def mhc(p: Params, ids: Tensor) -> Any:
    x = p["tok.weight"][ids.long()][:, :, None].expand(-1, -1, 3, -1)
    for i in range(4):
        b = f"layers.{i}.hc."
        flat, alpha = rmsnorm(x.flatten(2)), p[b + "alpha"]
        pre = torch.sigmoid(alpha[0] * linear(flat, p, b + "pre"))
        post = 2 * torch.sigmoid(alpha[1] * linear(flat, p, b + "post"))
        mixed = (alpha[2] * linear(flat, p, b + "res")).unflatten(-1, (3, 3)).exp()
        for _ in range(4):
            mixed = mixed / mixed.sum(-1, keepdim=True)
            mixed = mixed / mixed.sum(-2, keepdim=True)
        h = rmsnorm(torch.einsum("btn,btnd->btd", pre, x), p, b + "norm")
        if i % 2:
            h = linear(F.gelu(linear(h, p, b + "fc1")), p, b + "fc2")
        else:
            q, k, v = (split_heads(u, 2) for u in linear(h, p, b + "qkv").chunk(3, -1))
            h = linear(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)), p, b + "out")
        x = torch.einsum("btmn,btnd->btmd", mixed, x) + post[..., None] * h[:, :, None]
    return linear(rmsnorm(x.mean(2), p, "last"), p, "head")


def dora(p: Params, ids: Tensor) -> Any:
    def adapted(x: Tensor, n: str) -> Tensor:
        w = p[n + ".weight"].detach() + 2 * (p[n + ".b"] @ p[n + ".a"])
        return F.linear(x, p[n + ".magnitude"] * w / w.norm(dim=1, keepdim=True).detach())

    x = p["tok.weight"].detach()[ids.long()]
    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in adapted(rmsnorm(x, p, b + "n1"), b + "qkv").chunk(3, -1))
        x = x + adapted(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)), b + "out")
        x = x + adapted(F.silu(adapted(rmsnorm(x, p, b + "n2"), b + "up")), b + "down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def engram(p: Params, ids: Tensor) -> Any:
    def recall(n: int, primes: tuple[int, ...], name: str) -> list[Tensor]:
        hash = torch.zeros_like(ids, dtype=torch.int64)
        for j, factor in enumerate((2654435761, 40503, 2246822519)[:n]):
            hash = hash ^ (F.pad(ids, (j, 0))[:, : ids.shape[1]].long() * factor)
        return [p[f"{name}table.{i}.weight"][hash % prime] for i, prime in enumerate(primes)]

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        n = f"layers.{i}."
        if i == 1:
            m = n + "engram."
            e = torch.cat(recall(2, (7, 11), m + "gram.0.") + recall(3, (13, 17), m + "gram.1."), -1)
            k = rmsnorm(linear(e, p, m + "key"), p, m + "k_norm")
            score = (rmsnorm(x, p, m + "q_norm") * k).sum(-1, keepdim=True) * 8**-0.5
            v = torch.sigmoid(score.sign() * score.abs().clamp(min=1e-6).sqrt()) * linear(e, p, m + "value")
            wide = F.pad(rmsnorm(v, p, m + "v_norm").transpose(1, 2), (9, 0))
            x = x + v + F.silu(F.conv1d(wide, p[m + "conv.weight"], dilation=3, groups=8).transpose(1, 2))
        q, k, v = (split_heads(u, 2) for u in linear(rmsnorm(x, p, n + "ln1"), p, n + "attn.qkv").chunk(3, -1))
        x = x + linear(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)), p, n + "attn.out")
        x = x + linear(F.silu(linear(rmsnorm(x, p, n + "ln2"), p, n + "up")), p, n + "down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def var(p: Params, ids: Tensor, label: Tensor) -> Any:
    sides, total, seen = (1, 2, 4), 0.0, []
    for i, each in enumerate(ids.long().split([1, 4, 16], 1)[:2]):
        h = p["quant.codes.weight"][each].transpose(1, 2).unflatten(2, (sides[i], sides[i]))
        h = F.interpolate(h, (4, 4), mode="bicubic")
        n = f"quant.phi.{i}.conv"
        total = total + 0.5 * h + 0.5 * F.conv2d(h, p[n + ".weight"], p[n + ".bias"], padding=1)
        seen.append(F.interpolate(total, (sides[i + 1],) * 2, mode="area").flatten(2).transpose(1, 2))
    start = p["class.weight"][label.long() % 3]
    scale = torch.arange(3).repeat_interleave(torch.tensor([1, 4, 16]))
    x = torch.cat([start[:, None], linear(torch.cat(seen, 1), p, "word")], 1)
    x = x + p["place"] + p["level.weight"][scale]
    for i in range(2):
        n = f"layers.{i}."
        g1, g2, s1, s2, b1, b2 = linear(F.silu(start), p, n + "ada")[:, None].chunk(6, -1)
        y = F.layer_norm(x, x.shape[-1:]) * (1 + s1) + b1
        q, k, v = (split_heads(u, 2) for u in linear(y, p, n + "attn.qkv").chunk(3, -1))
        q, k = F.normalize(q, dim=-1) * p[n + "attn.scale"].exp(), F.normalize(k, dim=-1)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, scale[:, None] >= scale, scale=1.0)
        x = x + g1 * linear(merged(y), p, n + "attn.proj")
        y = F.layer_norm(x, x.shape[-1:]) * (1 + s2) + b2
        x = x + g2 * linear(F.gelu(linear(y, p, n + "up"), approximate="tanh"), p, n + "down")
    return linear(layernorm(x, p, "last"), p, "head")
