"""Models of images, alone or with texts, with PyTorch: a function of parameters and inputs for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, conv2d, layernorm, linear, merged, split_heads


def convnextv2(p: Params, x: Tensor) -> Any:
    def cn(x, n):
        return layernorm(x.permute(0, 2, 3, 1), p, n, 1e-6).permute(0, 3, 1, 2)

    x = F.conv2d(x, p["stem.weight"], p["stem.bias"], 4)
    x = cn(x, "stem_norm.ln")
    for k, d in enumerate([1, 2, 1]):
        s = f"stage.{k}."
        if k:
            x = cn(x, s + "norm.ln")
            x = F.conv2d(x, p[s + "down.weight"], p[s + "down.bias"], 2)
        for i in range(d):
            b = s + f"block.{i}."
            y = F.conv2d(x, p[b + "dw.weight"], p[b + "dw.bias"], padding=3, groups=x.shape[1]).permute(0, 2, 3, 1)
            y = F.gelu(linear(layernorm(y, p, b + "ln", 1e-6), p, b + "up"))
            g = torch.norm(y, dim=(1, 2), keepdim=True)
            nx = g / (g.mean(-1, keepdim=True) + 1e-6)
            y = p[b + "grn.gamma"] * (y * nx) + p[b + "grn.beta"] + y
            x = x + linear(y, p, b + "down").permute(0, 3, 1, 2)
    return linear(layernorm(x.mean((2, 3)), p, "last", 1e-6), p, "head")


def maxvit(p: Params, x: Tensor, train: bool = False) -> Any:
    e = 1e-3

    def mb(x, n, out, st):
        y = F.gelu(batchnorm(conv2d(batchnorm(x, p, n + "pre", train, e), p, n + "expand"), p, n + "bn1", train, e))
        y = F.gelu(batchnorm(conv2d(y, p, n + "dw", stride=st, padding=1, groups=4 * out), p, n + "bn2", train, e))
        y = y * torch.sigmoid(conv2d(F.silu(conv2d(y.mean((2, 3), keepdim=True), p, n + "se.fc1")), p, n + "se.fc2"))
        y = conv2d(y, p, n + "project")
        return (conv2d(F.avg_pool2d(x, 2), p, n + "skip") if st == 2 else x) + y

    def att(x, n):
        C = x.shape[-1]
        q, k, v = (
            u.view(*u.shape[:3], 2, C // 2).transpose(2, 3)
            for u in linear(layernorm(x, p, n + "ln1"), p, n + "qkv").chunk(3, -1)
        )
        y = (
            ((q @ k.transpose(-1, -2) * (C // 2) ** -0.5 + p[n + "bias"]).softmax(-1) @ v)
            .transpose(2, 3)
            .reshape(x.shape)
        )
        x = x + linear(y, p, n + "proj")
        return x + linear(F.gelu(linear(layernorm(x, p, n + "ln2"), p, n + "fc1")), p, n + "fc2")

    def blk(x, n, out, st, P=2):
        y = mb(x, n + "conv.", out, st)
        B, C, H, W = y.shape
        y = y.view(B, C, H // P, P, W // P, P).permute(0, 2, 4, 3, 5, 1).reshape(B, -1, P * P, C)
        y = att(y, n + "window.")
        y = y.view(B, H // P, W // P, P, P, C).permute(0, 5, 1, 3, 2, 4).reshape(B, C, H, W)
        y = y.view(B, C, P, H // P, P, W // P).permute(0, 3, 5, 2, 4, 1).reshape(B, -1, P * P, C)
        y = att(y, n + "grid.")
        return y.view(B, H // P, W // P, P, P, C).permute(0, 5, 3, 1, 4, 2).reshape(B, C, H, W)

    x = F.gelu(batchnorm(conv2d(x, p, "stem", stride=2, padding=1), p, "bn", train, e))
    x = blk(blk(x, "block1.", 8, 1), "block2.", 16, 2)
    return linear(torch.tanh(linear(layernorm(x.mean((2, 3)), p, "last"), p, "fc")), p, "head")


def inceptionnext(p: Params, x: Tensor, train: bool = False) -> Any:
    def blk(x, n):
        C = x.shape[1]
        g = C // 8
        a, b, c, d = x.split([C - 3 * g, g, g, g], 1)
        y = torch.cat(
            [
                a,
                conv2d(b, p, n + "mix.hw", padding=1, groups=g),
                conv2d(c, p, n + "mix.w", padding=(0, 2), groups=g),
                conv2d(d, p, n + "mix.h", padding=(2, 0), groups=g),
            ],
            1,
        )
        return x + p[n + "gamma"] * conv2d(F.gelu(conv2d(batchnorm(y, p, n + "bn", train), p, n + "fc1")), p, n + "fc2")

    x = batchnorm(conv2d(x, p, "stem", stride=4), p, "bn", train)
    for i in range(2):
        x = blk(x, f"s1.{i}.block.")
    x = conv2d(batchnorm(x, p, "bn_down", train), p, "down", stride=2)
    for i in range(2):
        x = blk(x, f"s2.{i}.block.")
    return linear(layernorm(F.gelu(linear(x.mean((2, 3)), p, "fc1")), p, "ln", 1e-6), p, "head")


def dinov2(p: Params, x: Tensor) -> Any:
    B = x.shape[0]
    z = conv2d(x, p, "patch", stride=4).flatten(2).transpose(1, 2)
    z = torch.cat([p["cls"].expand(B, -1, -1), z], 1) + p["pos"]
    z = torch.cat([z[:, :1], p["reg"].expand(B, -1, -1), z[:, 1:]], 1)
    for i in range(2):
        b = f"blocks.{i}.block."
        q, k, v = (split_heads(u, 2) for u in linear(layernorm(z, p, b + "n1", 1e-6), p, b + "qkv").chunk(3, -1))
        z = z + p[b + "ls1"] * linear(merged(F.scaled_dot_product_attention(q, k, v)), p, b + "proj")
        a, c = linear(layernorm(z, p, b + "n2", 1e-6), p, b + "mlp.w12").chunk(2, -1)
        z = z + p[b + "ls2"] * linear(F.silu(a) * c, p, b + "mlp.w3")
    z = layernorm(z, p, "last", 1e-6)
    return z[:, 0], z[:, 5:]


def nafnet(p: Params, x: Tensor) -> Any:
    def n2(x, n):
        return layernorm(x.permute(0, 2, 3, 1), p, n + ".ln", 1e-6).permute(0, 3, 1, 2)

    def conv2d(x, n, **k):
        return F.conv2d(x, p[n + ".weight"], p.get(n + ".bias"), **k)

    def gate(x):
        a, b = x.chunk(2, 1)
        return a * b

    def naf(x, n):
        y = gate(conv2d(conv2d(n2(x, n + ".n1"), n + ".c1"), n + ".c2", padding=1, groups=2 * x.shape[1]))
        y = y * conv2d(y.mean((2, 3), keepdim=True), n + ".sca")
        x = x + conv2d(y, n + ".c3") * p[n + ".beta"]
        return x + conv2d(gate(conv2d(n2(x, n + ".n2"), n + ".c4")), n + ".c5") * p[n + ".gamma"]

    h = conv2d(x, "intro", padding=1)
    kept = []
    for k in range(2):
        h = naf(h, f"enc.{k}.block")
        kept.append(h)
        h = conv2d(h, f"enc.{k}.down", stride=2)
    h = naf(h, "middle")
    for k in range(2):
        h = naf(F.pixel_shuffle(conv2d(h, f"dec.{k}.up"), 2) + kept[1 - k], f"dec.{k}.block")
    return x + conv2d(h, "ending", padding=1)


def dit(p: Params, x: Tensor, t: Tensor, label: Tensor) -> Any:
    d = 16
    half = d // 2
    fr = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=x.dtype) / half)
    a = t[:, None] * fr
    c = (
        linear(F.silu(linear(torch.cat([a.cos(), a.sin()], -1), p, "t_embed.fc1")), p, "t_embed.fc2")
        + p["y_embed.weight"][label.long()]
    )
    x = F.conv2d(x, p["patch.weight"], p["patch.bias"], 2).flatten(2).transpose(1, 2) + p["pos"]

    def mod(x, s, k):
        return x * (1 + k[:, None]) + s[:, None]

    def N(x):
        return F.layer_norm(x, x.shape[-1:], eps=1e-6)

    for i in range(2):
        b = f"blocks.{i}.block."
        m = linear(F.silu(c), p, b + "ada").chunk(6, -1)
        q, k, v = (split_heads(u, 2) for u in linear(mod(N(x), m[0], m[1]), p, b + "qkv").chunk(3, -1))
        x = x + m[2][:, None] * linear(merged(F.scaled_dot_product_attention(q, k, v)), p, b + "proj")
        x = x + m[5][:, None] * linear(
            F.gelu(linear(mod(N(x), m[3], m[4]), p, b + "fc1"), approximate="tanh"), p, b + "fc2"
        )
    m = linear(F.silu(c), p, "ada").chunk(2, -1)
    y = linear(mod(N(x), m[0], m[1]), p, "final").view(-1, 4, 4, 2, 2, 8)
    return torch.einsum("bhwpqc->bchpwq", y).reshape(-1, 8, 8, 8)


def edm(p: Params, x: Tensor, sigma: Tensor) -> Any:
    s = sigma.view(-1, 1, 1, 1)
    sk, ou, inn = 0.25 / (s**2 + 0.25), s * 0.5 / (s**2 + 0.25).sqrt(), 1 / (0.25 + s**2).sqrt()
    a = (sigma.log() / 4)[:, None] * torch.exp(-math.log(10000.0) * torch.arange(4, dtype=x.dtype) / 4)
    e = F.silu(linear(F.silu(linear(torch.cat([a.cos(), a.sin()], -1), p, "map0")), p, "map1"))

    def gn(x, n):
        return F.group_norm(x, 4, p[n + ".weight"], p[n + ".bias"], 1e-6)

    def res(x, n, out):
        y = conv2d(F.silu(gn(x, n + "n1")), p, n + "c1", padding=1)
        sc, b = linear(e, p, n + "affine")[:, :, None, None].chunk(2, 1)
        y = conv2d(F.silu(b + gn(y, n + "n2") * (sc + 1)), p, n + "c2", padding=1)
        return ((conv2d(x, p, n + "skip") if x.shape[1] != out else x) + y) * 0.5**0.5

    h = res(conv2d(inn * x, p, "first", padding=1), "down0.", 8)
    kept = h
    h = res(res(F.avg_pool2d(h, 2), "down1.", 16), "middle.", 16)
    h = res(torch.cat([F.interpolate(h, scale_factor=2), kept], 1), "up0.", 8)
    return sk * x + ou * conv2d(F.silu(gn(h, "norm")), p, "last", padding=1)


def siglip(p: Params, image: Tensor, text: Tensor) -> Any:
    a = linear(image, p, "image")
    b = linear(text, p, "text")
    a = a / a.norm(dim=-1, keepdim=True)
    b = b / b.norm(dim=-1, keepdim=True)
    return a @ b.T * p["scale"].exp() + p["bias"]


def vmamba(p: Params, image: Tensor) -> Any:
    x = layernorm(conv2d(image, p, "patches", stride=4).permute(0, 2, 3, 1), p, "ln")
    u, z = linear(layernorm(x, p, "ln1"), p, "ssm.in").chunk(2, -1)
    u = F.silu(conv2d(u.permute(0, 3, 1, 2), p, "ssm.conv", padding=1, groups=u.shape[-1]))
    B, D, H, W = u.shape
    rows, columns = u.flatten(2), u.transpose(2, 3).flatten(2)
    xs = torch.stack([rows, columns, rows.flip(-1), columns.flip(-1)], 1)
    dt, b, c = torch.einsum("bkdl,kcd->bkcl", xs, p["ssm.x_proj"]).split([2, 2, 2], 2)
    dt = F.softplus(torch.einsum("bkrl,kdr->bkdl", dt, p["ssm.dt_proj"]) + p["ssm.dt_bias"][..., None])
    h, ys = torch.zeros(B, 4, D, 2, dtype=xs.dtype), []
    for t in range(H * W):
        h = h * torch.exp(dt[..., t, None] * -p["ssm.a_log"].exp())
        h = h + (dt[..., t] * xs[..., t])[..., None] * b[:, :, None, :, t]
        ys.append((h * c[:, :, None, :, t]).sum(-1))
    y = torch.stack(ys, -1) + xs * p["ssm.skip"][..., None]
    y = y[:, :2] + y[:, 2:].flip(-1)
    y = y[:, 0] + y[:, 1].view(B, D, W, H).transpose(2, 3).flatten(2)
    y = layernorm(y.transpose(1, 2), p, "ssm.norm").view(B, H, W, D)
    x = x + linear(y * F.silu(z), p, "ssm.out")
    x = x + linear(F.gelu(linear(layernorm(x, p, "ln2"), p, "fc1")), p, "fc2")
    return linear(layernorm(x.mean((1, 2)), p, "last"), p, "head")


def yolov8(p: Params, image: Tensor, train: bool = False) -> Any:
    def cbs(x: Tensor, n: str, stride: int = 1) -> Tensor:
        x = conv2d(x, p, n + ".conv", stride=stride, padding=p[n + ".conv.weight"].shape[-1] // 2)
        return F.silu(batchnorm(x, p, n + ".bn", train, 1e-3))

    def c2f(x: Tensor, n: str) -> Tensor:
        parts = [*cbs(x, n + ".cv1").chunk(2, 1)]
        parts.append(parts[-1] + cbs(cbs(parts[-1], n + ".m.0.cv1"), n + ".m.0.cv2"))
        return cbs(torch.cat(parts, 1), n + ".cv2")

    p3 = c2f(cbs(cbs(image, "stem", 2), "down3", 2), "c3")
    levels = [cbs(c2f(cbs(p3, "down4", 2), "c4"), "pool.cv1")]
    for _ in range(3):
        levels.append(F.max_pool2d(levels[-1], 5, 1, 2))
    p4 = cbs(torch.cat(levels, 1), "pool.cv2")
    up = c2f(torch.cat([F.interpolate(p4, scale_factor=2), p3], 1), "neck.c2f")
    sides, scores, centres = [], [], []
    for n, x in (("head3", up), ("head4", p4)):
        box = conv2d(cbs(x, n + ".box1"), p, n + ".box2").flatten(2).unflatten(1, (4, 5))
        sides.append(box.permute(0, 3, 1, 2))
        scores.append(conv2d(cbs(x, n + ".cls1"), p, n + ".cls2").flatten(2).transpose(1, 2))
        at = torch.arange(x.shape[-1], dtype=image.dtype) + 0.5
        centres.append(torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).flatten(0, 1))
    side = torch.cat(sides, 1)
    far = (side.softmax(-1) * torch.arange(5)).sum(-1)
    at, strides = torch.cat(centres), torch.tensor([4.0] * 16 + [8.0] * 4, dtype=image.dtype)[:, None]
    boxes = torch.cat([at - far[..., :2], at + far[..., 2:]], -1) * strides
    return side, boxes, torch.cat(scores, 1)


def swinv2(p: Params, x: Tensor) -> Any:
    wide = 4
    steps = torch.arange(wide, dtype=x.dtype)
    at = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1).view(-1, 2)
    far = (at[:, None] - at) * 8 / (wide - 1)
    far = far.sign() * torch.log2(far.abs() + 1) / 3

    def regions(size: int, s: int) -> Tensor:
        parts, number = torch.zeros(size, size), 0
        for i in (slice(0, -wide), slice(-wide, -s), slice(-s, None)):
            for j in (slice(0, -wide), slice(-wide, -s), slice(-s, None)):
                parts[i, j], number = number, number + 1
        return parts.view(size // wide, wide, -1, wide).transpose(1, 2).reshape(-1, wide * wide)

    def attention(x: Tensor, n: str, heads: int, s: int) -> Tensor:
        size, count = x.shape[1], wide * wide
        y = torch.roll(x, (-s, -s), (1, 2)).view(len(x), size // wide, wide, size // wide, wide, -1)
        y = y.transpose(2, 3).reshape(-1, count, x.shape[3])
        q, k, v = (split_heads(u, heads) for u in linear(y, p, n + "qkv").chunk(3, -1))
        score = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(2, 3)
        bias = linear(F.relu(linear(far, p, n + "cpb1")), p, n + "cpb2").permute(2, 0, 1)
        score = score * p[n + "tau"].clamp(max=math.log(100)).exp() + 16 * bias.sigmoid()
        if s:
            r = regions(size, s)
            mask = torch.where(r[:, None] != r[:, :, None], -100.0, 0.0)[:, None]
            score = (score.view(len(x), -1, heads, count, count) + mask).view(-1, heads, count, count)
        y = linear(merged(score.softmax(-1) @ v), p, n + "proj")
        y = y.view(len(x), size // wide, size // wide, wide, wide, -1).transpose(2, 3).reshape(x.shape)
        return torch.roll(y, (s, s), (1, 2))

    x = layernorm(conv2d(x, p, "patch", stride=4).permute(0, 2, 3, 1), p, "ln")
    for n, heads, s in (("a.", 2, 0), ("b.", 2, 2), ("c.", 4, 0)):
        if n == "c.":
            x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
            x = layernorm(linear(x, p, "merge"), p, "mln")
        x = x + layernorm(attention(x, n + "attn.", heads, s), p, n + "ln1")
        x = x + layernorm(linear(F.gelu(linear(x, p, n + "up")), p, n + "down"), p, n + "ln2")
    return linear(layernorm(x, p, "last").mean((1, 2)), p, "head")
