"""Generative models by flows, and fields that are fitted to their derivatives, with PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, conv2d, linear, merged, rmsnorm, split_heads


def mmdit(p: Params, image: Tensor, noise: Tensor, time: Tensor, ids: Tensor) -> Any:
    def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]

    def stream(x: Tensor, c: Tensor, n: str) -> Any:
        s = linear(F.silu(c), p, n + ".ada").chunk(6, -1)
        q, k, v = (split_heads(u, 2) for u in linear(modulate(x, s[0], s[1]), p, n + ".qkv").chunk(3, -1))
        return rmsnorm(q, p, n + ".q_norm"), rmsnorm(k, p, n + ".k_norm"), v, s[2:]

    def rest(x: Tensor, y: Tensor, s: Any, n: str) -> Tensor:
        x = x + s[0][:, None] * linear(merged(y), p, n + ".proj")
        h = F.gelu(linear(modulate(x, s[1], s[2]), p, n + ".up"), approximate="tanh")
        return x + s[3][:, None] * linear(h, p, n + ".down")

    at = torch.sigmoid(time)
    z = torch.lerp(image, noise, at[:, None, None, None].to(image.dtype))
    x = conv2d(z, p, "patch", stride=2).flatten(2).transpose(1, 2) + p["pos"]
    text = p["tok.weight"][ids.long()]
    angle = 1000 * at[:, None] * torch.exp(-math.log(10000) * torch.arange(4, dtype=at.dtype) / 4)
    t = torch.cat([angle.cos(), angle.sin()], -1)
    c = linear(F.silu(linear(t, p, "time.t1")), p, "time.t2")
    c = c + linear(F.silu(linear(text.mean(1), p, "pool")), p, "pool2")
    for i in range(2):
        n = f"blocks.{i}.block."
        (qx, kx, vx, sx), (qt, kt, vt, st) = stream(x, c, n + "image"), stream(text, c, n + "text")
        q, k, v = torch.cat([qt, qx], 2), torch.cat([kt, kx], 2), torch.cat([vt, vx], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        x, text = rest(x, y[:, :, 3:], sx, n + "image_out"), rest(text, y[:, :, :3], st, n + "text_out")
    y = linear(modulate(x, *linear(F.silu(c), p, "ada").chunk(2, -1)), p, "last")
    y = y.view(-1, 2, 2, 2, 2, 2).permute(0, 5, 1, 3, 2, 4).reshape(-1, 2, 4, 4)
    return y, noise - image


def meanflow(p: Params, x: Tensor, noise: Tensor, time: Tensor) -> Any:
    def u(z: Tensor, r: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([z, t, t - r], -1)
        for n in ("l1", "l2"):
            h = F.silu(linear(h, p, "field." + n))
        return linear(h, p, "field.l3")

    s = torch.sigmoid(time)
    r, t = s.amin(1, keepdim=True), s.amax(1, keepdim=True)
    z, v = (1 - t) * x + t * noise, noise - x
    guess, slope = torch.func.jvp(u, (z, r, t), (v, torch.zeros_like(r), torch.ones_like(t)))
    return guess, (v - (t - r) * slope).detach()


def glow(p: Params, x: Tensor) -> Any:
    def step(x: Tensor, n: str) -> Any:
        C, (H, W) = x.shape[1], x.shape[2:]
        x = (x + p[n + "shift"]) * p[n + "logs"].exp()
        eye = torch.eye(C, dtype=x.dtype)
        lower, upper = p[n + "lower"].tril(-1) + eye, p[n + "upper"].triu(1) + torch.diag(p[n + "log_s"].exp())
        x = F.conv2d(x, (eye.roll(1, 1) @ lower @ upper)[:, :, None, None])
        a, b = x.chunk(2, 1)
        h = F.relu(conv2d(F.relu(conv2d(a, p, n + "c1", padding=1)), p, n + "c2"))
        s, t = conv2d(h, p, n + "c3", padding=1).chunk(2, 1)
        s = F.logsigmoid(s + 2)
        return torch.cat([a, (b + t) * s.exp()], 1), H * W * (p[n + "logs"].sum() + p[n + "log_s"].sum()) + s.sum(
            (1, 2, 3)
        )

    total, zs = x.new_zeros(len(x)), []
    for level in range(2):
        x = F.pixel_unshuffle(x, 2)
        for k in range(2):
            x, d = step(x, f"levels.{level}.steps.{k}.step.")
            total = total + d
        if level == 0:
            x, z = x.chunk(2, 1)
            mu, logs = conv2d(x, p, "levels.0.prior", padding=1).chunk(2, 1)
            total = total + torch.distributions.Normal(mu, logs.exp()).log_prob(z).sum((1, 2, 3))
            zs.append(z.flatten(1))
    total = total - (0.5 * x**2 + 0.5 * math.log(2 * math.pi)).sum((1, 2, 3))
    return torch.cat([*zs, x.flatten(1)], 1), total


def spline(p: Params, x: Tensor) -> Any:
    def curve(x: Tensor, w: Tensor, h: Tensor, d: Tensor) -> Any:
        w, h = (1e-3 + (1 - 4e-3) * u.softmax(-1) for u in (w, h))
        xk, yk = (6 * F.pad(u.cumsum(-1), (1, 0)) - 3 for u in (w, h))
        slopes = F.pad(1e-3 + F.softplus(d), (1, 1), value=1.0)
        inside, at = x.abs() <= 3, x.clamp(-3, 3)
        left = ((at[..., None] >= xk).sum(-1) - 1).clamp(0, 3)[..., None]
        x0, x1, y0, y1, d0, d1 = (u.gather(2, left + i)[..., 0] for u in (xk, yk, slopes) for i in (0, 1))
        s, t = (y1 - y0) / (x1 - x0), (at - x0) / (x1 - x0)
        below = s + (d0 + d1 - 2 * s) * t * (1 - t)
        y = y0 + (y1 - y0) * (s * t**2 + d0 * t * (1 - t)) / below
        slope = s**2 * (d1 * t**2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2) / below**2
        return torch.where(inside, y, x), torch.where(inside, slope.log(), 0.0)

    total = x.new_zeros(len(x))
    for i in range(2):
        a, b = (2 * x).chunk(2, 1)
        q = linear(F.relu(linear(a, p, f"layers.{i}.layer.l1")), p, f"layers.{i}.layer.l2").unflatten(1, (2, 11))
        y, d = curve(b, q[..., :4], q[..., 4:8], q[..., 8:])
        x, total = torch.cat([y, a], 1), total + d.sum(1)
    return x, total - (0.5 * x**2 + 0.5 * math.log(2 * math.pi)).sum(1)


def ffjord(p: Params, x: Tensor, e: Tensor) -> Any:
    def field(z: Tensor, t: float) -> Tensor:
        one = z.new_full((1, 1), t)
        for i in range(2):
            n = f"f.layers.{i}."
            z = linear(z, p, n + "main") * torch.sigmoid(linear(one, p, n + "gate")) + linear(one, p, n + "shift")
            z = torch.tanh(z) if i == 0 else z
        return z

    def both(z: Tensor, t: float) -> Any:
        if not z.requires_grad:
            z = z.detach().requires_grad_()
        with torch.enable_grad():
            k = field(z, t)
            return k, (torch.autograd.grad((k * e).sum(), z, create_graph=True)[0] * e).sum(1)

    z, change, dt = x, x.new_zeros(len(x)), 1 / 3
    for i in range(3):
        k1, d1 = both(z, i * dt)
        k2, d2 = both(z + 0.5 * dt * k1, (i + 0.5) * dt)
        k3, d3 = both(z + 0.5 * dt * k2, (i + 0.5) * dt)
        k4, d4 = both(z + dt * k3, (i + 1) * dt)
        z, change = z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), change - dt / 6 * (d1 + 2 * d2 + 2 * d3 + d4)
    log_p = -(0.5 * z**2 + 0.5 * math.log(2 * math.pi)).sum(1) - change
    return (z, log_p) if p["f.layers.0.main.weight"].requires_grad else (z.detach(), log_p.detach())


def siren(p: Params, place: Tensor) -> Any:
    with torch.enable_grad():
        at = place.detach().requires_grad_()
        y = torch.sin(3 * linear(at, p, "first.fc"))
        value = linear(torch.sin(3 * linear(y, p, "second.fc")), p, "last")
        slope = torch.autograd.grad(value.sum(), at, create_graph=True)[0]
        laplace = sum(torch.autograd.grad(slope[:, i].sum(), at, create_graph=True)[0][:, i] for i in range(2))
    found = value, slope, laplace
    return found if p["first.fc.weight"].requires_grad else tuple(u.detach() for u in found)
