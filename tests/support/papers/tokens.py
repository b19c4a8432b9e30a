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
