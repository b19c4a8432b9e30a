"""Atoms and points in space, with PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, layernorm, linear, merged, split_heads


def mace(p: Params, ids: Tensor, place: Tensor, left: Tensor, right: Tensor) -> Any:
    form = torch.zeros(5, 3, 3, dtype=place.dtype)
    for k, a, b in ((0, 0, 1), (1, 1, 2), (3, 0, 2)):
        form[k, a, b] = form[k, b, a] = 1
    form[4] = torch.diag(torch.tensor([1, -1, 0], dtype=place.dtype))
    form[2] = torch.diag(torch.tensor([-1, -1, 2], dtype=place.dtype)) / 3**0.5
    i, j = torch.cat([left, right]).long(), torch.cat([right, left]).long()

    def density(s: Tensor, v: Tensor, r: Tensor, n: str) -> Any:
        d = r.norm(dim=1, keepdim=True)
        u, x = r / d, d / 5
        q = torch.einsum("kab,la,lb->lk", form, u, u) * 15**0.5 / 2
        fade = torch.where(x < 1, 1 - 28 * x**6 + 48 * x**7 - 21 * x**8, 0)
        basis = 0.4**0.5 * torch.sin(torch.arange(1, 5, dtype=x.dtype) * math.pi * x) / d * fade
        w = linear(F.silu(linear(basis, p, n + "r1")), p, n + "r2").chunk(5, -1)
        h, g = linear(s, p, n + "up0")[j], linear(v, p, n + "up1")[j]
        m0 = w[0] * h + w[1] * (g * u[..., None]).sum(1)
        m1 = (w[2] * h)[:, None] * 3**0.5 * u[..., None] + w[3][:, None] * g
        m2 = (w[4] * h)[:, None] * q[..., None]
        return [m.new_zeros(len(s), *m.shape[1:]).index_add(0, i, m) / 2 for m in (m0, m1, m2)]

    def turned(a1: Tensor, a2: Tensor) -> Tensor:
        return torch.einsum("kab,mkf,mbf->maf", form, a2, a1)

    def scalars(a0: Tensor, a1: Tensor, a2: Tensor, n: str) -> Tensor:
        inner = (a1**2).sum(1)
        last = (a1 * turned(a1, a2)).sum(1)
        terms = torch.stack([a0, a0**2, inner, (a2**2).sum(1), a0**3, a0 * inner, last], 1)
        return linear((terms * p[n + "w"][ids.long()]).sum(1), p, n + "mix")

    def vectors(a0: Tensor, a1: Tensor, a2: Tensor, n: str) -> Tensor:
        wide = a0[:, None]
        terms = torch.stack([a1, wide * a1, turned(a1, a2), wide**2 * a1, (a1**2).sum(1, keepdim=True) * a1], 1)
        return linear((terms * p[n + "w"][ids.long()][:, :, None]).sum(1), p, n + "mix")

    with torch.enable_grad():
        at = place.detach().requires_grad_()
        r = at[j] - at[i]
        s = p["tok.weight"][ids.long()]
        parts = density(s, s.new_zeros(len(s), 3, s.shape[1]), r, "density1.")
        s, v = scalars(*parts, "scalars1."), vectors(*parts, "vectors1.")
        energy = p["own.weight"][ids.long()].sum() + linear(s, p, "head").sum()
        s = linear(s, p, "skip") + scalars(*density(s, v, r, "density2."), "scalars2.")
        energy = energy + linear(F.silu(linear(s, p, "head1")), p, "head2").sum()
        force = -torch.autograd.grad(energy, at, create_graph=True)[0]
    return (energy, force) if p["tok.weight"].requires_grad else (energy.detach(), force.detach())


def mace_loss(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    energy, force = output
    return (energy - y["e"]) ** 2 / len(force) + F.mse_loss(force, y["f"])


def ptv3(p: Params, place: Tensor) -> Tensor:
    B, N, _ = place.shape

    def morton(cell: Tensor) -> Tensor:
        return sum(((cell[..., a] >> b) & 1) << (3 * b + a) for b in range(3) for a in range(3))

    def rows(x: Tensor, order: Tensor) -> Tensor:
        return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))

    def around(x: Tensor, n: str) -> Tensor:
        steps = [[0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]]
        total = torch.zeros_like(x)
        for k, step in enumerate(steps):
            same = ((cell + torch.tensor(step))[:, :, None] == cell[:, None]).all(-1).to(x.dtype)
            total = total + linear(same @ x / same.sum(-1, keepdim=True).clamp(min=1), p, f"{n}taps.{k}.tap")
        return total

    def layer_of(x: Tensor, order: Tensor, n: str) -> Tensor:
        x = x + layernorm(linear(around(x, n + "cpe."), p, n + "cpe_out"), p, n + "cpe_ln")
        y = linear(layernorm(rows(x, order), p, n + "attn.ln"), p, n + "attn.qkv")
        q, k, v = y.view(B, N // 4, 4, 3, 2, -1).permute(3, 0, 1, 4, 2, 5)
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(B, N, -1)
        x = x + rows(linear(y, p, n + "attn.proj"), order.argsort(1))
        return x + linear(F.gelu(linear(layernorm(x, p, n + "ln2"), p, n + "up")), p, n + "down")

    cell = ((place + 1) * 4).floor().long().clamp(0, 7)
    x = F.gelu(linear(place, p, "stem"))
    code = morton(cell)
    x = layer_of(x, code.argsort(dim=1, stable=True), "first.")
    x = layer_of(x, morton(cell.flip(-1)).argsort(dim=1, stable=True), "second.")
    back = torch.stack([torch.unique(each, return_inverse=True)[1] for each in code // 8])
    index = back[..., None].expand_as(x)
    wide = linear(x, p, "pool")
    small = torch.zeros_like(wide).scatter_reduce(1, index, wide, "amax", include_self=False)
    small = F.gelu(layernorm(small, p, "pool_ln"))
    live = torch.arange(N) <= back.amax(1, keepdim=True)
    q, k, v = (split_heads(u, 2) for u in linear(small, p, "qkv").chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=live[:, None, None])
    small = small + linear(merged(y), p, "proj")
    y = linear(small, p, "unpool").gather(1, index) + linear(x, p, "skip")
    return linear(layernorm(y, p, "last"), p, "head")


def superglue(p: Params, at0: Tensor, at1: Tensor, f0: Tensor, f1: Tensor, train: bool = False) -> Tensor:
    def mlp(x: Tensor, n: str) -> Tensor:
        y = batchnorm(linear(x, p, n + ".a").mT, p, n + ".bn", train).mT
        return linear(F.relu(y), p, n + ".b")

    def attend(x: Tensor, s: Tensor, n: str) -> Tensor:
        q, k, v = (split_heads(linear(u, p, n + each), 2) for u, each in ((x, ".q"), (s, ".k"), (s, ".v")))
        y = linear(merged(F.scaled_dot_product_attention(q, k, v)), p, n + ".o")
        return x + mlp(torch.cat([x, y], 2), n + ".mlp")

    a, b = f0 + mlp(at0, "place"), f1 + mlp(at1, "place")
    for i in range(2):
        a, b = attend(a, a, f"gnn.{i}.same"), attend(b, b, f"gnn.{i}.same")
        a, b = attend(a, b, f"gnn.{i}.cross"), attend(b, a, f"gnn.{i}.cross")
    score = linear(a, p, "last") @ linear(b, p, "last").mT / math.sqrt(8)
    rows, n, m = score.shape
    score = torch.cat([score, p["bin"].expand(rows, n, 1)], 2)
    score = torch.cat([score, p["bin"].expand(rows, 1, m + 1)], 1)
    whole = math.log(n + m)
    mu, nu = (score.new_tensor([0.0] * k + [math.log(other)]) - whole for k, other in ((n, m), (m, n)))
    u, v = score.new_zeros(rows, n + 1, 1), score.new_zeros(rows, 1, m + 1)
    for _ in range(10):
        u = mu[:, None] - (score + v).logsumexp(2, keepdim=True)
        v = nu - (score + u).logsumexp(1, keepdim=True)
    return score + u + v - whole


def _superglue(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return -output[:, :-1].gather(2, y["y"].long()[..., None]).mean()


LOSSES = {"superglue": _superglue, "mace": mace_loss}
