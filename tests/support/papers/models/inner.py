"""Models that differentiate or solve something inside, with PyTorch: a function for each paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, linear, merged, rmsnorm, split_heads


def ebt(p: Params, ids: Tensor, noise: Tensor) -> Any:
    T = ids.shape[1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()

    def energy(x: Tensor, y: Tensor) -> Tensor:
        for i in range(2):
            n = f"net.layers.{i}."
            q, k, v = (split_heads(u, 2) for u in linear(rmsnorm(x, p, n + "ln1"), p, n + "attn.qkv").chunk(3, -1))
            a, b, c = (split_heads(u, 2) for u in linear(rmsnorm(y, p, n + "ln1"), p, n + "attn.qkv").chunk(3, -1))
            known = (q @ k.transpose(2, 3) * 0.5).masked_fill(~causal, -torch.inf).softmax(-1) @ v
            # one softmax over the known tokens and the guess itself, on the diagonal of a second half
            own = torch.diag_embed((a * b).sum(-1)).masked_fill(~torch.eye(T, dtype=torch.bool), -torch.inf)
            far = (a @ k.transpose(2, 3)).masked_fill(~causal, -torch.inf)
            guess = (torch.cat([far, own.to(far.dtype)], -1) * 0.5).softmax(-1) @ torch.cat([v, c], 2)
            x, y = (u + linear(merged(h), p, n + "attn.out") for u, h in ((x, known), (y, guess)))

            def wide(u: Tensor, n: str = n) -> Tensor:
                h = rmsnorm(u, p, n + "ln2")
                return u + linear(F.silu(linear(h, p, n + "gate")) * linear(h, p, n + "up"), p, n + "down")

            x, y = wide(x), wide(y)
        return linear(rmsnorm(y, p, "net.last"), p, "net.head")

    y, ys = noise, []
    with torch.enable_grad():
        for _ in range(2):
            y = y.detach().requires_grad_()
            e = energy(p["tok.weight"][ids.long()], linear(y.softmax(-1), p, "to_embed"))
            y = y - p["alpha"] * torch.autograd.grad(e.sum(), y, create_graph=True)[0]
            ys.append(y)
    return torch.stack(ys)


def mesanet(p: Params, ids: Tensor) -> Any:
    def mixer(x: Tensor, n: str) -> Tensor:
        def short(i: int) -> Tensor:
            u = linear(x, p, f"{n}w.{i}").transpose(1, 2)
            w = p[f"{n}conv.{i}.conv.weight"]
            return split_heads(F.silu(F.conv1d(F.pad(u, (3, 0)), w, groups=8).transpose(1, 2)), 2)

        q, k, v = (short(i) for i in range(3))
        q, k = (u * torch.rsqrt((u * u).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
        keep, write = torch.sigmoid(linear(x, p, n + "gates")).transpose(1, 2)[..., None, None].chunk(2, 1)
        ridge = torch.diag_embed(F.softplus(p[n + "ridge"]) + 0.25)
        h, g, ys = torch.zeros(len(x), 2, 4, 4, dtype=q.dtype), torch.zeros(len(x), 2, 4, 4, dtype=q.dtype), []
        for t in range(x.shape[1]):
            kt, vt, f, b = k[:, :, t, :, None], v[:, :, t, :, None], keep[:, :, t], write[:, :, t]
            h, g = f * h + b * kt @ kt.transpose(2, 3), f * g + b * vt @ kt.transpose(2, 3)
            full, qt = h + ridge, q[:, :, t, :, None]
            w = qt / torch.diagonal(full, dim1=2, dim2=3)[..., None]
            r = d = qt - full @ w
            for _ in range(2):
                square, ahead = (r * r).sum(2, keepdim=True), full @ d
                a = square / ((d * ahead).sum(2, keepdim=True) + 1e-6)
                w, r = w + a * d, r - a * ahead
                d = r + d * (r * r).sum(2, keepdim=True) / (square + 1e-6)
            ys.append((g @ w)[..., 0])
        return linear(rmsnorm(torch.stack(ys, 1), p, n + "norm").flatten(2), p, n + "out")

    x = p["tok.weight"][ids.long()]
    for i in range(2):
        n = f"layers.{i}."
        x = x + mixer(rmsnorm(x, p, n + "ln1"), n + "mixer.")
        gate, up = linear(rmsnorm(x, p, n + "ln2"), p, n + "gate_up").chunk(2, -1)
        x = x + linear(F.silu(gate) * up, p, n + "down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def _steps(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.cross_entropy(output.flatten(0, 2), y["y"].flatten().long().repeat(2))


LOSSES = {"ebt": _steps}
