"""Models of tables, series, sets and graphs with PyTorch: a function of parameters and inputs for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, layernorm, linear, merged, split_heads


def kan(p: Params, x: Tensor) -> Any:
    def layer(x, n):
        N, k = 5, 3
        h = 2.0 / N
        t = (torch.arange(N + 2 * k + 1, dtype=x.dtype) - k) * h - 1
        x3 = x[..., None]
        b = ((x3 >= t[:-1]) & (x3 < t[1:])).to(x.dtype)
        for j in range(1, k + 1):
            b = (x3 - t[: -(j + 1)]) / (t[j:-1] - t[: -(j + 1)]) * b[..., :-1] + (t[j + 1 :] - x3) / (
                t[j + 1 :] - t[1:-j]
            ) * b[..., 1:]
        return F.silu(x) @ p[n + ".base"].T + torch.einsum("big,oig->bo", b, p[n + ".coef"])

    return layer(layer(x, "l1"), "l2")


def tabm(p: Params, numbers: Tensor, category: Tensor) -> Any:
    B = numbers.shape[0]
    a = 2 * math.pi * numbers[..., None] * p["freq"]
    e = torch.einsum("bfp,fpd->bfd", torch.cat([a.cos(), a.sin()], -1), p["w"]).relu().flatten(1)
    c = torch.cat([p["first.weight"][category[:, 0].long()], p["second.weight"][category[:, 1].long()]], -1)
    x = torch.cat([e, c], -1)[:, None].expand(B, 4, -1)
    for i in range(2):
        n = f"hidden.{i}.e."
        x = F.relu(F.linear(x * p[n + "r"], p[n + "fc.weight"]) * p[n + "s"] + p[n + "bias"])
    return torch.einsum("bki,kio->bko", x, p["head"]) + p["bias"]


def patchtst(p: Params, x: Tensor, train: bool = False) -> Any:
    mu = x.mean(1, keepdim=True).detach()
    sd = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
    z = ((x - mu) / sd * p["scale"] + p["shift"]).transpose(1, 2).reshape(-1, 32)
    z = F.pad(z[:, None], (0, 4), mode="replicate")[:, 0].unfold(-1, 8, 4)
    z = linear(z, p, "embed") + p["pos"]

    def batchnorm(z, n):
        return F.batch_norm(
            z.transpose(1, 2),
            p[n + ".running_mean"].clone(),
            p[n + ".running_var"].clone(),
            p[n + ".weight"],
            p[n + ".bias"],
            train,
        ).transpose(1, 2)

    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(z, p, b + "qkv").chunk(3, -1))
        z = batchnorm(z + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, b + "proj"), b + "bn1")
        z = batchnorm(z + linear(F.gelu(linear(z, p, b + "fc1")), p, b + "fc2"), b + "bn2")
    y = linear(z.flatten(1), p, "head").view(x.shape[0], 5, 6).transpose(1, 2)
    return (y - p["shift"]) / (p["scale"] + 1e-10) * sd + mu


def itransformer(p: Params, x: Tensor) -> Any:
    mu = x.mean(1, keepdim=True)
    sd = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    z = linear(((x - mu) / sd).transpose(1, 2), p, "embed")
    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(z, p, b + "qkv").chunk(3, -1))
        z = layernorm(z + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, b + "proj"), p, b + "ln1")
        z = layernorm(z + linear(F.gelu(linear(z, p, b + "fc1")), p, b + "fc2"), p, b + "ln2")
    return linear(layernorm(z, p, "last"), p, "head").transpose(1, 2) * sd + mu


def tsmixer(p: Params, x: Tensor, train: bool = False) -> Any:
    B, L, C = x.shape
    for i in range(2):
        m = f"layers.{i}.mix."
        y = batchnorm(x.reshape(B, L * C), p, m + "bn1", train).view(B, L, C).transpose(1, 2)
        x = x + F.relu(linear(y, p, m + "time")).transpose(1, 2)
        y = batchnorm(x.reshape(B, L * C), p, m + "bn2", train).view(B, L, C)
        x = x + linear(F.relu(linear(y, p, m + "fc1")), p, m + "fc2")
    return linear(x.transpose(1, 2), p, "head").transpose(1, 2)


def nhits(p: Params, x: Tensor) -> Any:
    tot = x[:, -1:]
    rest = x.flip(1)
    for i, P in enumerate((8, 4, 1)):
        b = f"stacks.{i}."
        h = F.max_pool1d(rest[:, None], P)[:, 0]
        h = F.relu(linear(F.relu(linear(h, p, b + "fc1")), p, b + "fc2"))
        th = linear(h, p, b + "theta")
        rest = rest - th[:, :24]
        tot = tot + F.interpolate(th[:, None, 24:], 12, mode="linear")[:, 0]
    return tot


def softmoe(p: Params, x: Tensor) -> Any:
    h = layernorm(x, p, "ln")
    phi = p["moe.phi"]
    a = h / (h.norm(dim=-1, keepdim=True) + 1e-6)
    q = p["moe.scale"] * phi / (phi.norm(dim=0, keepdim=True) + 1e-6)
    lg = torch.einsum("btd,des->btes", a, q)
    D = lg.softmax(1)
    C = lg.flatten(2).softmax(-1).view_as(lg)
    y = torch.einsum("btd,btes->besd", h, D)
    y = torch.einsum("besf,efd->besd", F.gelu(torch.einsum("besd,edf->besf", y, p["moe.w1"])), p["moe.w2"])
    return linear((x + torch.einsum("besd,btes->btd", y, C)).mean(1), p, "head")


def gps(p: Params, x: Tensor, adj: Tensor) -> Any:
    h = linear(x, p, "embed")
    h = h + linear((adj.sum(-1, keepdim=True) + 1).log(), p, "degree")
    for i in range(2):
        b = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(h, p, b + "qkv").chunk(3, -1))
        far = layernorm(h + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, b + "proj"), p, b + "ln1")
        c = b + "conv."
        g = torch.sigmoid(linear(h, p, c + "src")[:, None] + linear(h, p, c + "dst")[:, :, None]) * adj[..., None]
        m = torch.einsum("bijd,bjd->bid", g, linear(h, p, c + "value")) / (g.sum(2) + 1e-6)
        h = far + layernorm(h + F.relu(linear(h, p, c + "own") + m), p, b + "ln2")
        h = layernorm(h + linear(F.relu(linear(h, p, b + "fc1")), p, b + "fc2"), p, b + "ln3")
    return linear(h.sum(1), p, "head")[:, 0]


def fits(p: Params, x: Tensor) -> Any:
    mu = x.mean(1, keepdim=True)
    sd = (x.var(1, keepdim=True) + 1e-5).sqrt()
    f = torch.fft.rfft(((x - mu) / sd).transpose(1, 2))[..., :8]
    w, b = torch.complex(p["wr"], p["wi"]), torch.complex(p["br"], p["bi"])
    y = torch.fft.irfft(F.pad(f @ w.T + b, (0, 7)), 36)
    return y.transpose(1, 2) * 1.5 * sd + mu


def cyclenet(p: Params, x: Tensor, ids: Tensor) -> Any:
    mu, sigma = x.mean(1, keepdim=True), (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    season = p["cycle"][(ids.long()[:, None] + torch.arange(18)) % 6]
    h = ((x - mu) / sigma - season[:, :10]).transpose(1, 2)
    h = linear(F.relu(linear(h, p, "fc1")), p, "fc2").transpose(1, 2)
    return (h + season[:, 10:]) * sigma + mu
