"""Models that find, cut out and make images with PyTorch: a function of parameters and inputs for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, conv2d, layernorm, linear, merged, split_heads


def groupnorm(x: Tensor, p: Params, n: str, groups: int = 2, eps: float = 1e-5) -> Tensor:
    return F.group_norm(x, groups, p[n + ".weight"], p[n + ".bias"], eps)


def sam(p: Params, image: Tensor, points: Tensor, kinds: Tensor) -> Any:
    def attention(q: Tensor, k: Tensor, v: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(linear(u, p, f"{n}.{e}"), 2) for u, e in ((q, "q"), (k, "k"), (v, "v")))
        return linear(merged(F.scaled_dot_product_attention(q, k, v)), p, n + ".out")

    def mlp(x: Tensor, n: str) -> Tensor:
        return linear(F.relu(linear(F.relu(linear(x, p, n + ".a")), p, n + ".b")), p, n + ".c")

    def waves(x: Tensor) -> Tensor:
        angle = 2 * math.pi * (x @ p["waves"].detach())
        return torch.cat([angle.sin(), angle.cos()], -1)

    B = len(image)
    line = (torch.arange(4, dtype=image.dtype) + 0.5) / 4
    xy = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)
    dense = waves(2 * xy.view(16, 2) - 1).expand(B, 16, 8)
    sparse = waves(points) + p["kind.weight"][kinds.long()]
    tokens = torch.cat([p["special"].expand(B, 4, 8), sparse], 1)
    x, t = image.flatten(2).mT, tokens
    for i in range(2):
        n = f"layers.{i}.two_way."
        q = t if i == 0 else t + tokens
        a = attention(q, q, t, n + "self")
        t = layernorm(a if i == 0 else t + a, p, n + "ln1")
        t = layernorm(t + attention(t + tokens, x + dense, x, n + "to_image"), p, n + "ln2")
        t = layernorm(t + linear(F.relu(linear(t, p, n + "fc1")), p, n + "fc2"), p, n + "ln3")
        x = layernorm(x + attention(x + dense, t + tokens, t, n + "to_tokens"), p, n + "ln4")
    t = layernorm(t + attention(t + tokens, x + dense, x, "final"), p, "ln_final")
    up = F.conv_transpose2d(x.mT.unflatten(2, (4, 4)), p["up1.weight"], p["up1.bias"], 2)
    up = F.gelu(layernorm(up.movedim(1, -1), p, "up_norm.ln", 1e-6).movedim(-1, 1))
    up = F.gelu(F.conv_transpose2d(up, p["up2.weight"], p["up2.bias"], 2))
    hyper = torch.stack([mlp(t[:, i + 1], f"hyper.{i}") for i in range(3)], 1)
    return torch.einsum("bmc,bchw->bmhw", hyper, up), mlp(t[:, 0], "quality")


def dino_detr(p: Params, fine: Tensor, coarse: Tensor) -> Any:
    def mlp(x: Tensor, n: str) -> Tensor:
        return linear(F.relu(linear(x, p, n + ".a")), p, n + ".b")

    maps = [groupnorm(conv2d(fine, p, "fine"), p, "gn1"), groupnorm(conv2d(coarse, p, "coarse"), p, "gn2")]
    B = len(fine)
    x, box = p["query"].expand(B, 4, 8), p["anchor"].sigmoid().expand(B, 4, 4)
    for i in range(2):
        n = f"layers.{i}."
        freq = 2 * math.pi * box.detach()[..., None] / 20 ** (torch.arange(2, dtype=box.dtype) / 2)
        at = mlp(torch.stack([freq.sin(), freq.cos()], -1).view(B, 4, 16), n + "place")
        q, k = (split_heads(u, 2) for u in linear(x + at, p, n + "qk").chunk(2, -1))
        v = split_heads(linear(x, p, n + "v"), 2)
        x = layernorm(x + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, n + "proj"), p, n + "ln1")
        offsets = linear(x + at, p, n + "offsets").view(B, 4, 2, 2, 3, 2)
        weights = linear(x + at, p, n + "weights").view(B, 4, 2, 6).softmax(-1)
        places = box[:, :, None, None, None, :2] + offsets / 3 * box[:, :, None, None, None, 2:] * 0.5
        parts = []
        for k in range(2):
            value = conv2d(maps[k], p, f"{n}level.{k}.value")
            value = value.unflatten(1, (2, 4)).flatten(0, 1)
            grid = (2 * places[:, :, :, k] - 1).transpose(1, 2).flatten(0, 1)
            seen = F.grid_sample(value, grid.to(value.dtype), align_corners=False)
            parts.append(seen.unflatten(0, (B, 2)).permute(0, 3, 1, 4, 2))
        seen = (torch.cat(parts, 3) * weights[..., None]).sum(3).flatten(2)
        x = layernorm(x + linear(seen, p, n + "out"), p, n + "ln2")
        x = layernorm(x + linear(F.relu(linear(x, p, n + "fc1")), p, n + "fc2"), p, n + "ln3")
        inverse = (box.clamp(1e-5, 1) / (1 - box).clamp(1e-5, 1)).log()
        box = (mlp(x, n + "delta") + inverse).sigmoid()
    return linear(x, p, "classes"), box


def consistency(p: Params, x: Tensor, noise: Tensor, sigma: Tensor) -> Any:
    def consistent(x: Tensor, sigma: Tensor, m: str) -> Tensor:
        def unit(x: Tensor, e: Tensor, n: str) -> Tensor:
            scale, shift = linear(F.silu(e), p, n + ".e")[..., None, None].chunk(2, 1)
            h = conv2d(F.silu(groupnorm(x, p, n + ".n1")), p, n + ".c1", padding=1)
            h = groupnorm(h, p, n + ".n2") * (1 + scale) + shift
            h = conv2d(F.silu(h), p, n + ".c2", padding=1)
            return h + (conv2d(x, p, n + ".skip") if n + ".skip.weight" in p else x)

        f = torch.exp(-math.log(10000) * torch.arange(4, dtype=sigma.dtype) / 4)
        angle = (250 * sigma.log())[:, None] * f
        e = linear(F.silu(linear(torch.cat([angle.cos(), angle.sin()], -1), p, m + "embed.a")), p, m + "embed.b")
        wide, s = sigma[:, None, None, None], sigma[:, None, None, None] - 0.002
        root = (wide**2 + 0.25).sqrt()
        a = unit(conv2d(x / root, p, m + "first", padding=1), e, m + "u1")
        b = unit(conv2d(a, p, m + "down", stride=2, padding=1), e, m + "u2")
        q, k, v = (u.flatten(2).mT for u in conv2d(groupnorm(b, p, m + "gn"), p, m + "qkv").chunk(3, 1))
        b = b + conv2d(F.scaled_dot_product_attention(q, k, v).mT.unflatten(2, (4, 4)), p, m + "proj")
        c = conv2d(F.interpolate(b, scale_factor=2), p, m + "up", padding=1)
        c = unit(torch.cat([c, a], 1), e, m + "u3")
        f = conv2d(F.silu(groupnorm(c, p, m + "gn_out")), p, m + "last", padding=1)
        return 0.25 / (s**2 + 0.25) * x + s * 0.5 / root * f

    near = sigma * 0.7
    far = consistent(x + noise * sigma[:, None, None, None], sigma, "online.")
    return consistent(x + noise * near[:, None, None, None], near, "target.").detach(), far


def fsq(p: Params, x: Tensor) -> Any:
    def unit(x: Tensor, n: str) -> Tensor:
        y = conv2d(F.silu(groupnorm(x, p, n + ".n1", eps=1e-6)), p, n + ".c1", padding=1)
        return x + conv2d(F.silu(groupnorm(y, p, n + ".n2", eps=1e-6)), p, n + ".c2", padding=1)

    h = unit(conv2d(x, p, "first", padding=1), "e1")
    h = unit(conv2d(F.pad(h, (0, 1, 0, 1)), p, "down", stride=2), "e2")
    z = conv2d(F.silu(groupnorm(h, p, "norm", eps=1e-6)), p, "last")
    z = z.float() if z.dtype is torch.bfloat16 else z
    levels = torch.tensor([5, 4, 3])
    half = ((levels.to(z.dtype) - 1) * (1 - 0.001) / 2)[:, None, None]
    offset = torch.where(levels % 2 == 1, 0.0, 0.5).to(z.dtype)[:, None, None]
    code = (z + torch.atanh(offset / half)).tanh() * half - offset
    code = code + (code.round() - code).detach()
    width = (levels // 2)[:, None, None]
    index = ((code + width).int() * torch.tensor([1, 5, 20])[:, None, None]).sum(1)
    y = unit(conv2d(code / width, p, "open", padding=1), "d1")
    y = unit(conv2d(F.interpolate(y, scale_factor=2), p, "up", padding=1), "d2")
    return conv2d(F.silu(groupnorm(y, p, "norm_out", eps=1e-6)), p, "close", padding=1), index


def eva02(p: Params, image: Tensor) -> Any:
    def turned(x: Tensor) -> Tensor:
        side, N = 3, x.shape[-1]
        freq = 1 / 10000 ** (torch.arange(N // 4, dtype=image.dtype) / (N // 4))
        one = (torch.arange(side, dtype=image.dtype)[:, None] / side * 16 * freq).repeat_interleave(2, 1)
        angle = torch.cat([one[:, None].expand(side, side, -1), one[None].expand(side, side, -1)], -1).flatten(0, 1)
        half = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * angle.cos() + half * angle.sin()

    def attention(x: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(linear(x, p, f"{n}.{e}"), 2) for e in "qkv")
        q, k = (torch.cat([u[:, :, :1], turned(u[:, :, 1:])], 2).to(v.dtype) for u in (q, k))
        y = merged(F.scaled_dot_product_attention(q, k, v))
        return linear(layernorm(y, p, n + ".inner"), p, n + ".out")

    x = conv2d(image, p, "patch", stride=4).flatten(2).mT
    x = torch.cat([p["cls"].expand(len(x), 1, -1), x], 1) + p["pos"]
    for i in range(2):
        b = f"blocks.{i}."
        x = x + attention(layernorm(x, p, b + "ln1", 1e-6), b + "attn")
        h = layernorm(x, p, b + "ln2", 1e-6)
        h = F.silu(linear(h, p, b + "mlp.w1")) * linear(h, p, b + "mlp.w2")
        x = x + linear(layernorm(h, p, b + "mlp.ln"), p, b + "mlp.w3")
    return linear(layernorm(x[:, 1:].mean(1), p, "norm", 1e-6), p, "head")


def mobilevitv2(p: Params, image: Tensor, train: bool = False) -> Any:
    def cb(x: Tensor, n: str, stride: int = 1, groups: int = 1) -> Tensor:
        k = p[n + ".conv.weight"].shape[-1]
        x = conv2d(x, p, n + ".conv", stride=stride, padding=k // 2, groups=groups)
        return F.silu(batchnorm(x, p, n + ".bn", train))

    def inverted(x: Tensor, n: str, stride: int) -> Tensor:
        C = x.shape[1]
        y = cb(cb(x, n + ".up"), n + ".dw", stride, 2 * C)
        y = batchnorm(conv2d(y, p, n + ".down"), p, n + ".bn", train)
        return x + y if y.shape == x.shape else y

    x = inverted(inverted(cb(image, "stem", 2), "ir1", 1), "ir2", 2)
    y = conv2d(cb(x, "mv.near", 1, x.shape[1]), p, "mv.wide")
    B, D, H, W = y.shape
    y = F.unfold(y, 2, stride=2).view(B, D, 4, -1)
    q, k, v = conv2d(groupnorm(y, p, "mv.ln1", 1), p, "mv.attn.qkv").split([1, D, D], 1)
    y = y + conv2d(F.relu(v) * (k * q.softmax(-1)).sum(-1, keepdim=True), p, "mv.attn.out")
    h = F.silu(conv2d(groupnorm(y, p, "mv.ln2", 1), p, "mv.fc1"))
    y = groupnorm(y + conv2d(h, p, "mv.fc2"), p, "mv.last", 1)
    y = F.fold(y.reshape(B, D * 4, -1), (H, W), 2, stride=2)
    y = batchnorm(conv2d(y, p, "mv.proj"), p, "mv.bn", train)
    return linear(y.mean((2, 3)), p, "head")
