"""Atoms, objects and motion with PyTorch: a function for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, conv2d, layernorm, linear


def egnn(p: Params, ids: Tensor, x: Tensor) -> Any:
    h = p["tok.weight"][ids.long()]
    N, F_ = h.shape[1:]
    for i in range(2):
        n = f"layers.{i}.layer."
        apart = x[:, :, None] - x[:, None]
        m = torch.cat([h[:, :, None].expand(-1, N, N, F_), h[:, None].expand(-1, N, N, F_),
                       (apart**2).sum(-1, keepdim=True)], -1)  # fmt: skip
        m = F.silu(linear(F.silu(linear(m, p, n + "edge.l1")), p, n + "edge.l2"))
        m = m * torch.sigmoid(linear(m, p, n + "attend")) * (1 - torch.eye(N, dtype=x.dtype))[..., None]
        move = linear(F.silu(linear(m, p, n + "x1")), p, n + "x2")
        x = x + (apart * move).sum(2) / (N - 1)
        h = h + linear(F.silu(linear(torch.cat([h, m.sum(2)], -1), p, n + "h1")), p, n + "h2")
    return linear(h, p, "head").sum((1, 2)), x


def painn(p: Params, ids: Tensor, place: Tensor, left: Tensor, right: Tensor) -> Any:
    i, j = torch.cat([left, right]).long(), torch.cat([right, left]).long()
    with torch.enable_grad():
        at = place.detach().requires_grad_()
        s = p["tok.weight"][ids.long()]
        v = s.new_zeros(len(s), 3, 4)
        r = at[j] - at[i]
        d = r.norm(dim=1, keepdim=True)
        basis = torch.sin(d * torch.arange(1, 6, dtype=d.dtype) * math.pi / 5) / d
        fade = torch.where(d < 5, 0.5 * (torch.cos(math.pi * d / 5) + 1), 0.0)
        for k in range(2):
            n = f"layers.{k}.message."
            phi = linear(F.silu(linear(s, p, n + "s1")), p, n + "s2")
            a, b, c = (phi[j] * linear(basis, p, n + "filter") * fade).chunk(3, -1)
            s = s.index_add(0, i, a)
            v = v.index_add(0, i, v[j] * b[:, None] + c[:, None] * (r / d)[..., None])
            n = f"layers.{k}.update."
            x, y = linear(v, p, n + "mix").chunk(2, -1)
            vv, sv, ss = linear(F.silu(linear(torch.cat([s, y.norm(dim=1)], -1), p, n + "u1")), p, n + "u2").chunk(
                3, -1
            )
            s, v = s + ss + sv * (x * y).sum(1), v + x * vv[:, None]
        energy = linear(F.silu(linear(s, p, "h1")), p, "h2").sum()
        force = -torch.autograd.grad(energy, at, create_graph=True)[0]
    return (energy, force) if p["h1.weight"].requires_grad else (energy.detach(), force.detach())


def ipa(p: Params, s: Tensor, z: Tensor) -> Any:
    B, N = s.shape[:2]
    r, t = torch.eye(3, dtype=s.dtype).expand(B, N, 3, 3), s.new_zeros(B, N, 3)

    def attend(s: Tensor) -> Tensor:
        q, k, v = linear(s, p, "attend.qkv").view(B, N, 3, 2, 3).unbind(2)
        points = torch.einsum("bnij,bnhpj->bnhpi", r, linear(s, p, "attend.points").view(B, N, 2, 6, 3))
        qp, kp, vp = (points + t[:, :, None, None]).chunk(3, 3)
        far = ((qp[:, :, None] - kp[:, None]) ** 2).sum((-1, -2))
        bias = linear(z, p, "attend.bias") - F.softplus(p["attend.gamma"]) * (1 / 9) ** 0.5 / 2 * far
        a = (3**-0.5 * (torch.einsum("bihc,bjhc->bhij", q, k) * 3**-0.5 + bias.permute(0, 3, 1, 2))).softmax(-1)
        y = torch.einsum("bhij,bjhc->bihc", a, v).flatten(2)
        pair = torch.einsum("bhij,bijc->bihc", a, z).flatten(2)
        o = torch.einsum("bhij,bjhpx->bihpx", a, vp) - t[:, :, None, None]
        o = torch.einsum("bnji,bnhpj->bnhpi", r, o)
        size = ((o**2).sum(-1) + 1e-8).sqrt()
        return linear(torch.cat([y, pair, o.flatten(2), size.flatten(2)], -1), p, "attend.out")

    for _ in range(2):
        s = layernorm(s + attend(s), p, "ln")
        s = s + linear(F.relu(linear(s, p, "fc1")), p, "fc2")
        m = linear(s, p, "move")
        q = F.normalize(torch.cat([torch.ones_like(m[..., :1]), m[..., :3]], -1), dim=-1)
        a, b, c, d = q.unbind(-1)
        turn = torch.stack([
            a**2 + b**2 - c**2 - d**2, 2 * b * c - 2 * a * d, 2 * b * d + 2 * a * c,
            2 * b * c + 2 * a * d, a**2 - b**2 + c**2 - d**2, 2 * c * d - 2 * a * b,
            2 * b * d - 2 * a * c, 2 * c * d + 2 * a * b, a**2 - b**2 - c**2 + d**2,
        ], -1).unflatten(-1, (3, 3))  # fmt: skip
        t = t + torch.einsum("bnij,bnj->bni", r, m[..., 3:])
        r = r @ turn
    return s, t


def slot(p: Params, x: Tensor, draw: Tensor) -> Any:
    x = layernorm(x, p, "ln_in")
    k, v = linear(x, p, "k"), linear(x, p, "v")
    slots = p["mu"] + p["sigma"].exp() * draw
    for i in range(3):
        slots = slots.detach() if i == 2 else slots
        a = (linear(layernorm(slots, p, "ln"), p, "q") @ k.transpose(1, 2) * 0.5).softmax(1) + 1e-8
        u = (a / a.sum(-1, keepdim=True)) @ v
        cell = [p[f"cell.{n}"] for n in ("ih.weight", "hh.weight", "ih.bias", "hh.bias")]
        slots = torch.gru_cell(u.flatten(0, 1), slots.flatten(0, 1), *cell).view_as(slots)
        slots = slots + linear(F.relu(linear(layernorm(slots, p, "ln_mlp"), p, "fc1")), p, "fc2")
    return slots, a


def capsule(p: Params, x: Tensor) -> Any:
    def squash(u: Tensor) -> Tensor:
        n = (u**2).sum(-1, keepdim=True)
        return n / (1 + n) * u / torch.sqrt(n + 1e-7)

    u = conv2d(F.relu(conv2d(x, p, "conv")), p, "primary", stride=2)
    u = squash(u.unflatten(1, (2, 4)).permute(0, 1, 3, 4, 2).flatten(1, 3))
    guess = torch.einsum("bin,ijnm->bijm", u, p["w"])
    b = torch.zeros_like(guess[..., 0])
    for r in range(3):
        v = squash(torch.einsum("bij,bijm->bjm", b.softmax(-1), guess if r == 2 else guess.detach()))
        b = b + (guess.detach() * v[:, None]).sum(-1) if r < 2 else b
    length = ((v**2).sum(-1) + 1e-7).sqrt()
    best = F.one_hot(length.argmax(-1), 3).to(v.dtype)
    return length, torch.sigmoid(linear(F.relu(linear((v * best[..., None]).flatten(1), p, "d1")), p, "d2"))


def raft(p: Params, a: Tensor, b: Tensor) -> Any:
    def encoder(x: Tensor, n: str) -> Tensor:
        return conv2d(F.relu(F.instance_norm(conv2d(x, p, n + ".c1", stride=2, padding=1))), p, n + ".c2", padding=1)

    B = len(a)
    volume = torch.einsum("bcij,bckl->bijkl", encoder(a, "features"), encoder(b, "features")) * 6**-0.5
    volume = volume.reshape(B * 64, 1, 8, 8)
    pyramid = [volume, F.avg_pool2d(volume, 2)]
    h, context = encoder(a, "context").chunk(2, 1)
    h, context = torch.tanh(h), F.relu(context)
    axis = torch.arange(8, dtype=a.dtype)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"))
    near = torch.arange(-1, 2, dtype=a.dtype)
    delta = torch.stack(torch.meshgrid(near, near, indexing="xy"), -1)
    flow, flows = a.new_zeros(B, 2, 8, 8), []
    for _ in range(2):
        flow = flow.detach()
        seen = []
        for level in range(2):
            centre = (grid + flow).permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level
            place = 2 * (centre + delta) / (8 // 2**level - 1) - 1
            part = F.grid_sample(pyramid[level], place, align_corners=True)
            seen.append(part.view(B, 8, 8, 9).permute(0, 3, 1, 2))
        m = torch.cat([F.relu(conv2d(torch.cat([*seen, flow], 1), p, "motion", padding=1)), flow, context], 1)
        hm = torch.cat([h, m], 1)
        u, r = (torch.sigmoid(conv2d(hm, p, n, padding=1)) for n in "zr")
        h = (1 - u) * h + u * torch.tanh(conv2d(torch.cat([r * h, m], 1), p, "q", padding=1))
        flow = flow + conv2d(h, p, "head", padding=1)
        flows.append(flow)
    return torch.stack(flows)


def grit(p: Params, x: Tensor, adj: Tensor) -> Any:
    N = x.shape[1]
    both, eye = torch.maximum(adj, adj.transpose(1, 2)), torch.eye(N, dtype=x.dtype)
    a = torch.where(eye > 0, 1, both)
    walks = [eye.expand(len(x), N, N)]
    for _ in range(3):
        walks.append(walks[-1] @ (a / a.sum(-1, keepdim=True)))
    steps, degree = torch.stack(walks, -1), both.sum(-1, keepdim=True)
    h = linear(x, p, "node") + linear(steps.diagonal(dim1=1, dim2=2).transpose(1, 2), p, "place")
    e = linear(steps, p, "edge")
    for i in range(2):
        b, n = f"layers.{i}.", f"layers.{i}.attn."
        q, k, v = (linear(h, p, f"{n}w.{j}") for j in range(3))
        scale, shift = linear(e, p, n + "pair").chunk(2, -1)
        s = (q[:, :, None] + k[:, None]) * scale
        s = F.relu(s.sign() * (s.abs().relu() + 1e-6).sqrt() + shift)
        w = torch.softmax(torch.einsum("bijhn,hn->bijh", s.unflatten(-1, (2, -1)), p[n + "a"]), 2)
        y = torch.einsum("bijh,bjhn->bihn", w, v.unflatten(-1, (2, -1)))
        y = (y + torch.einsum("bijh,bijhn->bihn", w, linear(s, p, n + "value").unflatten(-1, (2, -1)))).flatten(2)
        y = y * p[n + "theta"][0] + y * torch.log1p(degree) * p[n + "theta"][1]
        h = layernorm(h + linear(y, p, n + "out"), p, b + "ln1")
        e = layernorm(e + linear(s, p, n + "out_pair"), p, b + "ln_pair")
        h = layernorm(h + linear(F.relu(linear(h, p, b + "fc1")), p, b + "fc2"), p, b + "ln2")
    return linear(torch.cat([h.mean(1), e.mean((1, 2))], -1), p, "head")
