"""Forecasts, tables, speech and worlds with PyTorch: a function for each paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, layernorm, linear, merged, split_heads


def tft(p: Params, x: Tensor, fixed: Tensor, known: Tensor) -> Any:
    def gate(h: Tensor, n: str) -> Tensor:
        return F.glu(linear(h, p, n + ".gate"))

    def grn(x: Tensor, n: str, c: Tensor | None = None) -> Tensor:
        h = linear(x, p, n + ".fc1")
        if c is not None:
            h = h + linear(c, p, n + ".context")[:, None]
        h = gate(linear(F.elu(h), p, n + ".fc2"), n)
        return layernorm((linear(x, p, n + ".skip") if n + ".skip.weight" in p else x) + h, p, n + ".ln")

    def gated(x: Tensor, skip: Tensor, n: str) -> Tensor:
        return layernorm(skip + gate(x, n), p, n + ".ln")

    c = grn(linear(fixed[:, None], p, "static"), "enrich")[:, 0]
    e = [linear(x[..., i : i + 1], p, f"past.embed.{i}") for i in range(3)]
    w = grn(torch.cat(e, -1), "past", c).softmax(-1)
    each = [grn(u, f"past.grn.{i}") for i, u in enumerate(e)]
    past = (torch.stack(each, 2) * w[..., None]).sum(2)
    future = linear(F.pad(known, (0, 1)), p, "future")

    def lstm(x: Tensor, h: Tensor, s: Tensor, n: str) -> Any:
        weights = [p[f"{n}.{k}_l0"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        return torch.lstm(
            x, (h, s), weights, True, 1, 0.0, True, False, True
        )  # no dropout; in cuDNN only training has gradients

    y, h, s = lstm(past, c[None], c[None], "encoder")
    z = lstm(future, h, s, "decoder")[0]
    y = gated(torch.cat([y, z], 1)[:, 2:], torch.cat([past, future], 1)[:, 2:], "after")
    y = grn(y, "static_enrichment", c)
    q, k = (split_heads(linear(y, p, "attn." + n), 2) for n in "qk")
    keep = torch.ones(6, 6, dtype=torch.bool).tril()
    a = (q @ k.transpose(2, 3) * 2**-0.5).masked_fill(~keep, -torch.inf).softmax(-1)
    o = linear((a @ linear(y, p, "attn.v")[:, None]).mean(1), p, "attn.out")
    return linear(grn(gated(o, y, "post"), "ff")[:, -2:], p, "quantiles")


def tabnet(p: Params, x: Tensor, train: bool = False) -> Any:
    def sparsemax(x: Tensor) -> Tensor:
        z = x.sort(-1, descending=True).values
        k, total = torch.arange(1, 7, dtype=x.dtype), z.cumsum(-1)
        count = (1 + k * z > total).sum(-1, keepdim=True)
        return F.relu(x - (total.gather(1, count - 1) - 1) / count)

    def unit(x: Tensor, n: str) -> Tensor:
        return F.glu(batchnorm(linear(x, p, n + ".fc"), p, n + ".bn", train))

    def shared(x: Tensor) -> Tensor:  # in evaluation the statistics are the first ones; in training, the batch's
        return unit(x, "shared")

    x = batchnorm(x, p, "bn", train)
    prior, total, out = torch.ones_like(x), 0.0, 0.0
    a = unit(shared(x), "first")[:, 3:]
    for i in range(2):
        n = f"steps.{i}."
        m = sparsemax(prior * batchnorm(linear(a, p, n + "mask"), p, n + "bn", train))
        prior, total = prior * (1.3 - m), total - (m * torch.log(m + 1e-10)).sum(1) / 2
        h = shared(m * x)
        h = (h + unit(h, n + "own")) * 0.5**0.5
        out, a = out + F.relu(h[:, :3]), h[:, 3:]
    return linear(out, p, "head"), total


def wav2vec(p: Params, wave: Tensor, masked: Tensor, draw: Tensor) -> Any:
    x = F.conv1d(wave[:, None], p["c0.weight"], stride=3)
    x = F.gelu(F.group_norm(x, 6, p["gn.weight"], p["gn.bias"]))
    x = layernorm(F.gelu(F.conv1d(x, p["c1.weight"], stride=2)).transpose(1, 2), p, "ln")
    z = torch.where(masked[..., None] > 4, p["mask"], linear(x, p, "project"))
    w = torch._weight_norm(p["v"], p["g"], 2)
    at = F.conv1d(z.transpose(1, 2), w, p["b"], padding=2, groups=2)[..., :-1].transpose(1, 2)
    c = layernorm(z + F.gelu(at), p, "ln_in")
    n = "layers.0.layer."
    q, k, v = (split_heads(u, 2) for u in linear(c, p, n + "qkv").chunk(3, -1))
    c = layernorm(c + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, n + "out"), p, n + "ln1")
    c = layernorm(c + linear(F.gelu(linear(c, p, n + "up")), p, n + "down"), p, n + "ln2")
    logits = linear(x, p, "q_logits").unflatten(-1, (2, 3))
    soft = ((logits + draw) / 2).softmax(-1)
    hard = F.one_hot(soft.argmax(-1), 3).to(soft.dtype)
    quantised = torch.einsum("btgv,gvd->btgd", (hard - soft).detach() + soft, p["codes"]).flatten(2)
    return linear(c, p, "final"), linear(quantised, p, "q_out"), logits.softmax(-1).mean((0, 1))


def rssm(p: Params, x: Tensor, action: Tensor, draw: Tensor) -> Any:
    def logits(u: Tensor, n: str) -> Tensor:
        return (0.99 * linear(u, p, n + ".out").unflatten(-1, (2, 3)).softmax(-1) + 0.01 / 3).log()

    e = F.silu(layernorm(linear(x.sign() * x.abs().log1p(), p, "enc"), p, "enc_ln"))
    h, z = x.new_zeros(len(x), 6), x.new_zeros(len(x), 6)
    seen = []
    for t in range(x.shape[1]):
        u = F.silu(linear(torch.cat([z, action[:, t]], -1), p, "inp"))
        r, c, g = layernorm(linear(torch.cat([u, h], -1), p, "gates"), p, "ln").chunk(3, -1)
        g = torch.sigmoid(g - 1)
        h = g * torch.tanh(torch.sigmoid(r) * c) + (1 - g) * h
        prior, post = logits(h, "prior"), logits(torch.cat([h, e[:, t]], -1), "post")
        hard = F.one_hot((post + draw[:, t]).argmax(-1), 3).to(x.dtype)
        z = (hard + post.exp() - post.exp().detach()).flatten(1)
        seen.append((h, z, prior, post))
    hs, zs, priors, posts = (torch.stack(u, 1) for u in zip(*seen, strict=True))
    return linear(F.silu(linear(torch.cat([hs, zs], -1), p, "dec1")), p, "dec2"), priors, posts


def convlstm(p: Params, x: Tensor) -> Any:
    def cell(x: Tensor, h: Tensor, c: Tensor, n: str) -> Any:
        ys = []
        for t in range(x.shape[1]):
            gates = F.conv2d(torch.cat([x[:, t], h], 1), p[n + ".gates.weight"], p[n + ".gates.bias"], padding=1)
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f + p[n + ".wf"] * c) * c + torch.sigmoid(i + p[n + ".wi"] * c) * torch.tanh(g)
            h = torch.sigmoid(o + p[n + ".wo"] * c) * torch.tanh(c)
            ys.append(h)
        return torch.stack(ys, 1), h, c

    z = x.new_zeros(len(x), 2, 4, 4)
    y, h1, c1 = cell(x, z, z, "enc1")
    y, h2, c2 = cell(y, z, z, "enc2")
    a = cell(torch.zeros_like(y), h2, c2, "dec2")[0]
    b = cell(a, h1, c1, "dec1")[0]
    y = F.conv2d(torch.cat([a, b], 2).flatten(0, 1), p["out.weight"], p["out.bias"])
    return y.view(2, -1, 1, 4, 4)


def vqvae(p: Params, x: Tensor) -> Any:
    """The averages are updated after the step, which reads those of the step before."""
    z = F.relu(F.conv2d(x, p["e1.weight"], p["e1.bias"], stride=2, padding=1))
    z = F.conv2d(z, p["e2.weight"], p["e2.bias"], padding=1).flatten(2).transpose(1, 2)
    codes = (p["vq.total"] / p["vq.count"][:, None]).detach()
    index = torch.cdist(z.detach(), codes).argmin(-1)
    code = codes[index]
    y = (z + (code - z).detach()).transpose(1, 2).unflatten(2, (4, 4))
    y = F.relu(F.conv2d(y, p["d1.weight"], p["d1.bias"], padding=1))
    return F.conv_transpose2d(y, p["d2.weight"], p["d2.bias"], stride=2, padding=1), z, code, index


class _Spike(torch.autograd.Function):
    """1 above 0, else 0, with the gradient of a fast sigmoid."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2


def lsnn(p: Params, x: Tensor) -> Any:
    v, z, b = (x.new_zeros(len(x), 10) for _ in range(3))
    y, decay = x.new_zeros(len(x), 3), p["leak"].sigmoid()
    spikes, ys = [], []
    for t in range(x.shape[1]):
        b = 0.9 * b + 0.1 * z
        now = x[:, t] @ p["win"] + z @ (p["wrec"] * (1 - torch.eye(10, dtype=x.dtype)))
        v = decay * v * (z.detach() < 0.5) + (1 - decay) * now
        z = _Spike.apply(v - 0.02 - 0.5 * b)
        y = 0.8 * y + z @ p["out"] + p["bias"]
        spikes.append(z)
        ys.append(y)
    return torch.stack(ys).softmax(-1).mean(0), torch.stack(spikes).mean((0, 1))


def _lsnn(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    share, rate = output
    return F.nll_loss((share + 1e-6).log(), y["y"].long()) + 0.5 * ((rate - 0.2) ** 2).sum()


LOSSES = {"lsnn": _lsnn}
