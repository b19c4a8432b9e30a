"""Generative models that are sampled step by step, with PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, layernorm, linear, merged, split_heads


def tarflow(p: Params, image: Tensor, label: Tensor) -> Any:
    def net(x: Tensor, n: str) -> Any:
        y = linear(x, p, n + "enter") + p[n + "place"] + p[n + "class.weight"][label.long()][:, None]
        for i in range(2):
            each = f"{n}layers.{i}.layer."
            q, k, v = (split_heads(u, 2) for u in linear(layernorm(y, p, each + "ln1"), p, each + "qkv").chunk(3, -1))
            y = y + linear(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)), p, each + "proj")
            y = y + linear(F.gelu(linear(layernorm(y, p, each + "ln2"), p, each + "up")), p, each + "down")
        a, b = F.pad(linear(y, p, n + "leave")[:, :-1], (0, 0, 1, 0)).chunk(2, -1)
        return a.tanh(), b

    x = image.view(-1, 2, 2, 2, 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(-1, 4, 8)
    a, b = net(x, "first.")
    total = -a.sum((1, 2))
    a, b = net(x := ((x - b) * torch.exp(-a)).flip(1), "second.")
    z = (x - b) * torch.exp(-a)
    total = total - a.sum((1, 2)) - (0.5 * z**2 + 0.5 * math.log(2 * math.pi)).sum((1, 2))
    u = z
    for n in ("second.", "first."):
        for t in range(4):
            a, b = net(u, n)
            u = torch.where((torch.arange(4) == t)[:, None], u * torch.exp(a) + b, u)
        u = u.flip(1) if n == "second." else u
    copy = u.view(-1, 2, 2, 2, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(-1, 2, 4, 4)
    return z, total, copy


def guided(p: Params, x: Tensor, noise: Tensor, time: Tensor, label: Tensor, kinds: Tensor) -> Any:
    def net(x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        angle = 2 * math.pi * t[:, None] * torch.exp(-math.log(100) * torch.arange(4, dtype=t.dtype) / 4)
        c = linear(F.silu(linear(torch.cat([angle.sin(), angle.cos()], -1), p, "net.t1")), p, "net.t2")
        c = F.silu(c + p["net.tok.weight"][label.long()])
        h = linear(x, p, "net.enter")
        for i in range(2):
            n = f"net.layers.{i}."
            shift, scale, gate = linear(c, p, n + "ada").chunk(3, -1)
            y = F.layer_norm(h, h.shape[-1:]) * (1 + scale) + shift
            h = h + gate * linear(F.gelu(linear(y, p, n + "up")), p, n + "down")
        return linear(layernorm(h, p, "net.last"), p, "net.leave")

    def velocity(y: Tensor, t: float) -> Tensor:
        at = torch.full_like(time, t)
        c, u = net(y, at, label % 3), net(y, at, torch.full_like(label, 3))
        v = u + 2 * (c - u)
        same = v * c.std(1, keepdim=True, correction=0) / (v.std(1, keepdim=True, correction=0) + 1e-6)
        return 0.7 * same + 0.3 * v

    t = torch.sigmoid(time)
    guess = net((1 - t)[:, None] * noise + t[:, None] * x, t, torch.where(kinds == 0, 3, label % 3))
    y = noise
    for i in range(4):
        k1 = velocity(y, i / 4)
        k2 = velocity(y + k1 / 4, (i + 1) / 4)
        y = y + (k1 + k2) / 8
    return guess, x - noise, y


LOSSES = {
    "tarflow": lambda p, output, x, y: -output[1].mean() / 32,
    "guided": lambda p, output, x, y: F.mse_loss(*output[:2]),
}
