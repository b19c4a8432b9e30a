"""Models with memories and chunks of their own, with PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, linear, merged, rmsnorm, split_heads


def titans(p: Params, ids: Tensor) -> Tensor:
    def unit(x: Tensor) -> Tensor:
        return x / torch.sqrt((x**2).sum(-1, keepdim=True) + 1e-6)

    def memory(x: Tensor, n: str) -> Tensor:
        q, k, v = (F.silu(linear(x, p, n + each)) for each in "qkv")
        q, k = unit(q), unit(k)
        rates = torch.sigmoid(linear(x, p, n + "rates"))[..., None, None]
        m1, m2 = (p[n + each].expand(len(x), -1, -1) for each in ("first", "second"))
        s1, s2, ys = torch.zeros_like(m1), torch.zeros_like(m2), []
        for t in range(x.shape[1]):
            with torch.enable_grad():
                a, b = (m if m.requires_grad else m.detach().requires_grad_() for m in (m1, m2))
                surprise = ((F.silu(k[:, t, None] @ a) @ b - v[:, t, None]) ** 2).sum()
                d1, d2 = torch.autograd.grad(surprise, (a, b), create_graph=True)
            eta, theta, alpha = rates[:, t].unbind(1)
            s1, s2 = eta * s1 - theta * d1, eta * s2 - theta * d2
            m1, m2 = (1 - alpha) * a + s1, (1 - alpha) * b + s2
            ys.append((F.silu(q[:, t, None] @ m1) @ m2)[:, 0])
        return linear(torch.stack(ys, 1), p, n + "out")

    def windowed(x: Tensor, n: str) -> Tensor:
        fixed = p[n + "fixed"]
        y = torch.cat([fixed.expand(len(x), -1, -1), x], 1)
        q, k, v = (split_heads(u, 2) for u in linear(y, p, n + "qkv").chunk(3, -1))
        at = torch.arange(y.shape[1])
        age = at[:, None] - at
        seen = (age >= 0) & ((age < 3) | (at < len(fixed)))
        z = merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen))
        return linear(z[:, len(fixed) :], p, n + "out")

    x = p["tok.weight"][ids.long()]
    y = rmsnorm(x, p, "ln1")
    near, far = windowed(y, "attn."), memory(y, "memory.")
    x = x + rmsnorm(near, p, "ln_near") * torch.sigmoid(rmsnorm(far, p, "ln_far"))
    x = x + linear(F.silu(linear(rmsnorm(x, p, "ln2"), p, "up")), p, "down")
    found = linear(rmsnorm(x, p, "last"), p, "head")
    return found if p["tok.weight"].requires_grad else found.detach()


def hnet(p: Params, ids: Tensor) -> Any:
    def mixer(x: Tensor, n: str) -> Tensor:
        a = torch.sigmoid(p[n + "decay"])
        i, z = linear(rmsnorm(x, p, n + "norm"), p, n + "inner").chunk(2, -1)
        h, ys = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = a * h + (1 - a) * i[:, t]
            ys.append(h)
        return x + linear(torch.stack(ys, 1) * F.silu(z), p, n + "out")

    def attention(x: Tensor, count: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(u, 2) for u in linear(rmsnorm(x, p, n + "norm"), p, n + "qkv").chunk(3, -1))
        at = torch.arange(x.shape[1])
        seen = (at <= at[:, None]) & (at < count[:, None, None])
        return x + linear(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])), p, n + "out")

    x = mixer(p["tok.weight"][ids.long()], "encoder.")
    q, k = (linear(x, p, each) for each in "qk")
    sure = 0.5 * (1 - F.cosine_similarity(q[:, 1:], k[:, :-1], dim=-1))
    sure = F.pad(sure.clamp(1e-4, 1 - 1e-4), (1, 0), value=1.0)
    begin = sure >= 0.5
    count, chunk = begin.sum(1), begin.cumsum(1) - 1
    order = begin.int().argsort(dim=1, descending=True, stable=True)
    z = x.gather(1, order[..., None].expand_as(x))
    for i in range(2):
        z = attention(z, count, f"main.{i}.layer.")
    pz = sure.gather(1, order)
    last, ys = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        last = pz[:, t, None] * z[:, t] + (1 - pz[:, t, None]) * last
        ys.append(last)
    y = torch.stack(ys, 1).gather(1, chunk[..., None].expand_as(x))
    c = torch.where(begin, sure, 1 - sure)
    y = y * (c + (1 - c).detach())[..., None] + linear(x, p, "residual")
    return linear(rmsnorm(mixer(y, "decoder."), p, "last"), p, "head"), sure, begin.to(x.dtype)


def hnet_loss(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, sure, begin = output
    f, g, n = begin.mean(1), sure.mean(1), 3
    ratio = (n / (n - 1) * ((n - 1) * f * g + (1 - f) * (1 - g))).mean()
    return F.cross_entropy(logits.flatten(0, -2), y["y"].flatten().long()) + 0.03 * ratio


LOSSES = {"hnet": hnet_loss}
