"""Models of scenes, fields and molecules with PyTorch: a function of parameters and inputs for each paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, conv2d, layernorm, linear, split_heads


def ngp(p: Params, at: Tensor, ray: Tensor) -> Any:
    x = at.flatten(0, 1) * 0.5 + 0.5
    corners = torch.tensor([[i // 4 % 2, i // 2 % 2, i % 2] for i in range(8)])
    found = []
    for level in range(3):
        table = p[f"grid.level.{level}.table"]
        scaled = x * float(int(4 * 1.6**level))
        low = scaled.floor()
        cells = low.long()[:, None] + corners
        w = (scaled - low)[:, None]
        w = torch.where(corners == 1, w, 1 - w).prod(-1)
        h = (cells * torch.tensor([1, 2654435761, 805459861])) & 0xFFFFFFFF
        h = (h[..., 0] ^ h[..., 1] ^ h[..., 2]) % len(table)
        found.append((table[h] * w[..., None]).sum(1))
    h = linear(F.relu(linear(torch.cat(found, -1), p, "d1")), p, "d2")
    sigma = h[:, 0].exp().view(-1, 5)
    d = ray / ray.norm(dim=1, keepdim=True)
    x, y, z = d.unbind(1)
    look = torch.stack(
        [torch.full_like(x, 0.28209479), -0.48860251 * y, 0.48860251 * z, -0.48860251 * x, 1.09254843 * x * y,
         -1.09254843 * y * z, 0.31539157 * (3 * z**2 - 1), -1.09254843 * x * z, 0.54627422 * (x**2 - y**2)], 1
    )  # fmt: skip
    c = torch.cat([h, look.repeat_interleave(5, 0)], -1)
    c = linear(F.relu(linear(c, p, "c1")), p, "c2").sigmoid().view(-1, 5, 3)
    alpha = 1 - torch.exp(-sigma * 0.2)
    weight = alpha * F.pad((1 - alpha)[:, :4].cumprod(1), (1, 0), value=1.0)
    t = torch.linspace(0.1, 0.9, 5, dtype=sigma.dtype)
    return (weight[..., None] * c).sum(1), (weight * t).sum(1)


def splat(p: Params, camera: Tensor) -> Any:
    q = p["turn"] / p["turn"].norm(dim=1, keepdim=True)
    w, x, y, z = q.unbind(1)
    r = torch.stack(
        [1 - 2 * (y**2 + z**2), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x**2 + z**2),
         2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x**2 + y**2)], 1
    ).view(-1, 3, 3)  # fmt: skip
    m = r * torch.exp(p["stretch"] - 1)[:, None]
    view = camera[:, :, :3] + 2 * torch.eye(3, dtype=q.dtype)
    at = torch.einsum("bij,gj->bgi", view, p["place"]) + camera[:, None, :, 3]
    px, py, pz = (at + torch.tensor([0.0, 0, 6], dtype=q.dtype)).unbind(-1)
    zero, focal = torch.zeros_like(px), 5.0
    jacobian = torch.stack([focal / pz, zero, -focal * px / pz**2, zero, focal / pz, -focal * py / pz**2], -1)
    t = jacobian.view(*px.shape, 2, 3) @ view[:, None]
    flat = t @ (m @ m.mT) @ t.mT + 0.3 * torch.eye(2, dtype=q.dtype)
    a, b, c = flat[..., 0, 0], flat[..., 0, 1], flat[..., 1, 1]
    det = a * c - b**2
    order = pz.argsort(dim=1, stable=True)
    centre = torch.stack([focal * px / pz, focal * py / pz], -1).take_along_dim(order[..., None], 1)
    i = torch.stack([c / det, -b / det, a / det], -1).take_along_dim(order[..., None], 1)[:, :, None]
    line = torch.arange(6, dtype=q.dtype) - 2.5
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).view(1, 1, 36, 2)
    d = grid - centre[:, :, None]
    power = -0.5 * (i[..., 0] * d[..., 0] ** 2 + i[..., 2] * d[..., 1] ** 2) - i[..., 1] * d[..., 0] * d[..., 1]
    alpha = (p["opacity"].sigmoid()[order] * power.exp()).clamp(0, 0.99)
    through = F.pad((1 - alpha)[:, :-1].cumprod(1), (0, 0, 1, 0), value=1.0)
    return torch.einsum("bgp,bgc->bcp", alpha * through, p["colour"].sigmoid()[order]).view(-1, 3, 6, 6)


def ffno(p: Params, field: Tensor) -> Any:
    def spectral(x: Tensor, name: str) -> Tensor:
        wide = x.float() if x.dtype is torch.bfloat16 else x
        f, w = torch.fft.rfft(wide), torch.complex(p[name + "r"], p[name + "i"])
        return torch.fft.irfft(torch.einsum("bixm,iom->boxm", f[..., :3], w), x.shape[-1])

    B = len(field)
    y = torch.linspace(0, 1, 8, dtype=field.dtype).view(1, 1, 8, 1).expand(B, 1, 8, 6)
    x = torch.linspace(0, 1, 6, dtype=field.dtype).expand(B, 1, 8, 6)
    h = conv2d(torch.cat([field, x, y], 1), p, "lift")
    for i in range(2):
        b = f"layers.{i}."
        both = spectral(h, "wx") + spectral(h.mT, "wy").mT
        h = h + conv2d(F.gelu(conv2d(both, p, b + "fc1")), p, b + "fc2")
    return conv2d(F.gelu(conv2d(h, p, "head1")), p, "head2")


def pairformer(p: Params, s: Tensor) -> Any:
    def gated(x: Tensor, n: str) -> Tensor:
        return linear(x, p, n) * linear(x, p, n + "_gate").sigmoid()

    def product(z: Tensor, n: str, pattern: str) -> Tensor:
        z = layernorm(z, p, n + ".ln_in")
        y = torch.einsum(pattern, gated(z, n + ".a"), gated(z, n + ".b"))
        return linear(layernorm(y, p, n + ".ln_out"), p, n + ".out") * linear(z, p, n + ".gate").sigmoid()

    def attention(z: Tensor, n: str) -> Tensor:
        z = layernorm(z, p, n + ".ln")
        q, k, v = (u.unflatten(-1, (2, -1)).transpose(2, 3) for u in linear(z, p, n + ".qkv").chunk(3, -1))
        bias = linear(z, p, n + ".bias").permute(0, 3, 1, 2)[:, None]
        y = (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v
        y = y.transpose(2, 3).flatten(3)
        return linear(y * linear(z, p, n + ".gate").sigmoid(), p, n + ".out")

    def transition(x: Tensor, n: str) -> Tensor:
        x = layernorm(x, p, n + ".ln")
        return linear(F.silu(linear(x, p, n + ".a")) * linear(x, p, n + ".b"), p, n + ".out")

    at = torch.arange(s.shape[1])
    z = linear(s, p, "left")[:, :, None] + linear(s, p, "right")[:, None]
    z = z + p["relative.weight"][(at[:, None] - at + 4).clamp(0, 8)]
    b = "layers.0."
    z = z + product(z, b + "out", "bikc,bjkc->bijc")
    z = z + product(z, b + "in", "bkic,bkjc->bijc")
    z = z + attention(z, b + "start")
    z = z + attention(z.transpose(1, 2), b + "end").transpose(1, 2)
    z = z + transition(z, b + "pair")
    bias = linear(layernorm(z, p, b + "ln_bias"), p, b + "bias").permute(0, 3, 1, 2)
    h = layernorm(s, p, b + "ln")
    q, k, v = (u.unflatten(-1, (2, -1)).transpose(1, 2) for u in linear(h, p, b + "qkv").chunk(3, -1))
    y = ((q @ k.mT * 3**-0.5 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2)
    s = s + linear(y * linear(h, p, b + "gate").sigmoid(), p, b + "o")
    s = s + transition(s, b + "single")
    return s, linear(z + z.transpose(1, 2), p, "distogram")


def transolver(p: Params, at: Tensor, f: Tensor) -> Any:
    x = torch.cat(
        [torch.cdist(at, p["ref"].expand(len(at), -1, -1), compute_mode="donot_use_mm_for_euclid_dist"), f], -1
    )
    x = linear(F.gelu(linear(x, p, "pre1")), p, "pre2") + p["placeholder"]
    for i in range(2):
        b = f"blocks.{i}."
        h = layernorm(x, p, b + "ln1")
        value, key = (split_heads(linear(h, p, b + n), 2) for n in ("attn.fx", "attn.x"))
        heat = p[b + "attn.temperature"].view(2, 1, 1).clamp(0.1, 5)
        w = torch.softmax(linear(key, p, b + "attn.to_slices") / heat, -1)
        tokens = torch.einsum("bhnc,bhng->bhgc", value, w) / (w.sum(2)[..., None] + 1e-5)
        y = F.scaled_dot_product_attention(*(linear(tokens, p, f"{b}attn.w.{j}") for j in range(3)))
        x = x + linear(torch.einsum("bhgc,bhng->bhnc", y, w).transpose(1, 2).flatten(2), p, b + "attn.out")
        x = x + linear(F.gelu(linear(layernorm(x, p, b + "ln2"), p, b + "fc1")), p, b + "fc2")
    return linear(layernorm(x, p, "ln3"), p, "head")
