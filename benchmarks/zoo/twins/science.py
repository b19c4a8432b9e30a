"""Twins of models of points, proteins, molecules, and of KAN."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _EdgeConv(nn.Module):
    def __init__(self, c: int, out: int, k: int) -> None:
        super().__init__()
        self.conv, self.norm, self.k = nn.Conv2d(2 * c, out, 1, bias=False), nn.BatchNorm2d(out), k

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(len(x), device=x.device)[:, None, None]
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            wide = x.float() if x.dtype == torch.bfloat16 else x
            square = (wide**2).sum(1)
            near = 2 * (wide.mT @ wide) - square[:, None] - square[:, :, None]
            which = near.topk(self.k, 2).indices
        points = x.mT
        own = points[:, :, None].expand(-1, -1, self.k, -1)
        edges = torch.cat([points[rows, which] - own, own], 3).permute(0, 3, 1, 2)
        found: Tensor = F.leaky_relu(self.norm(self.conv(edges)), 0.2).amax(3)
        return found


class DGCNN(nn.Module):
    def __init__(self, k: int, classes: int = 40) -> None:
        super().__init__()
        sizes = [3, 64, 64, 128, 256]
        self.e1, self.e2, self.e3, self.e4 = (_EdgeConv(c, out, k) for c, out in pairwise(sizes))
        self.wide, self.norm = nn.Conv1d(512, 1024, 1, bias=False), nn.BatchNorm1d(1024)
        self.fc1, self.norm1 = nn.Linear(2048, 512, bias=False), nn.BatchNorm1d(512)
        self.fc2, self.norm2, self.head = nn.Linear(512, 256), nn.BatchNorm1d(256), nn.Linear(256, classes)

    def forward(self, points: Tensor) -> Tensor:
        xs = [points]
        for layer in (self.e1, self.e2, self.e3, self.e4):
            xs.append(layer(xs[-1]))
        y = F.leaky_relu(self.norm(self.wide(torch.cat(xs[1:], 1))), 0.2)
        y = torch.cat([y.amax(2), y.mean(2)], 1)
        y = F.leaky_relu(self.norm1(self.fc1(y)), 0.2)
        found: Tensor = self.head(F.leaky_relu(self.norm2(self.fc2(y)), 0.2))
        return found


class _Attention(nn.Module):
    def __init__(self, d: int, heads: int, n: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(d, heads * n, bias=False) for _ in range(3))
        self.gate, self.out = nn.Linear(d, heads * n), nn.Linear(heads * n, d)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        q, k, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, bias)
        found: Tensor = self.out(self.gate(x).sigmoid() * y.transpose(1, 2).flatten(2))
        return found


class _Biases(nn.Module):
    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.fc = nn.Linear(c, heads, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        found: Tensor = self.fc(z).permute(2, 0, 1)
        return found


class _Transition(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.fc2(self.fc1(self.norm(x)).relu())
        return found


class _Outer(nn.Module):
    def __init__(self, d: int, out: int, c: int) -> None:
        super().__init__()
        self.norm, self.a, self.b, self.out = nn.LayerNorm(d), nn.Linear(d, c), nn.Linear(d, c), nn.Linear(c * c, out)

    def forward(self, m: Tensor) -> Tensor:
        m = self.norm(m)
        found: Tensor = self.out(torch.einsum("sic,sjd->ijcd", self.a(m), self.b(m)).flatten(2) / len(m))
        return found


class _Multiplied(nn.Module):
    def __init__(self, d: int, pattern: str) -> None:
        super().__init__()
        self.norm, self.norm_out, self.pattern = nn.LayerNorm(d), nn.LayerNorm(d), pattern
        self.a, self.b, self.gate_a, self.gate_b, self.gate, self.out = (nn.Linear(d, d) for _ in range(6))

    def forward(self, z: Tensor) -> Tensor:
        z = self.norm(z)
        a, b = self.gate_a(z).sigmoid() * self.a(z), self.gate_b(z).sigmoid() * self.b(z)
        y = torch.einsum(self.pattern, a, b)
        found: Tensor = self.gate(z).sigmoid() * self.out(self.norm_out(y))
        return found


class _Triangle(nn.Module):
    def __init__(self, d: int, heads: int, n: int) -> None:
        super().__init__()
        self.norm, self.bias, self.attn = nn.LayerNorm(d), _Biases(d, heads), _Attention(d, heads, n)

    def forward(self, z: Tensor) -> Tensor:
        z = self.norm(z)
        found: Tensor = self.attn(z, self.bias(z))
        return found


class _Block(nn.Module):
    def __init__(self, d: int, c: int) -> None:
        super().__init__()
        self.norm_bias, self.bias = nn.LayerNorm(c), _Biases(c, 8)
        self.norm_row, self.row = nn.LayerNorm(d), _Attention(d, 8, 32)
        self.norm_column, self.column = nn.LayerNorm(d), _Attention(d, 8, 32)
        self.transition, self.outer, self.transition_pair = _Transition(d), _Outer(d, c, 32), _Transition(c)
        self.leaving, self.meeting = _Multiplied(c, "ikc,jkc->ijc"), _Multiplied(c, "kic,kjc->ijc")
        self.start, self.end = _Triangle(c, 4, 32), _Triangle(c, 4, 32)

    def forward(self, m: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        m = m + self.row(self.norm_row(m), self.bias(self.norm_bias(z)))
        m = m + self.column(self.norm_column(m).transpose(0, 1)).transpose(0, 1)
        m = m + self.transition(m)
        z = z + self.outer(m)
        z = z + self.leaving(z)
        z = z + self.meeting(z)
        z = z + self.start(z)
        z = z + self.end(z.transpose(0, 1)).transpose(0, 1)
        return m, z + self.transition_pair(z)


class Evoformer(nn.Module):
    def __init__(self, blocks: int, d: int = 256, c: int = 128) -> None:
        super().__init__()
        self.left, self.right, self.places = nn.Linear(22, c), nn.Linear(22, c), nn.Embedding(65, c)
        self.msa, self.target, self.head = nn.Linear(49, d), nn.Linear(22, d), nn.Linear(c, 64)
        self.h = nn.ModuleList(nn.ModuleDict({"block": _Block(d, c)}) for _ in range(blocks))

    def forward(self, msa: Tensor, target: Tensor) -> Tensor:
        at = torch.arange(len(target), device=target.device)
        z = self.left(target)[:, None] + self.right(target)
        z = z + self.places((at[:, None] - at).clamp(-32, 32) + 32)
        m = self.msa(msa) + self.target(target)
        for each in self.h:
            m, z = each["block"](m, z)
        y = self.head(z)
        found: Tensor = y + y.transpose(0, 1)
        return found


def _ssp(x: Tensor) -> Tensor:
    return F.softplus(x) - math.log(2)


class _Mix(nn.Module):
    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.filter1, self.filter2 = nn.Linear(k, c), nn.Linear(c, c)
        self.out1, self.out2 = nn.Linear(c, c), nn.Linear(c, c)
        self.add_module("in", nn.Linear(c, c, bias=False))

    def forward(self, x: Tensor, near: Tensor, cut: Tensor, source: Tensor, sink: Tensor) -> Tensor:
        y = getattr(self, "in")(x)[source] * (self.filter2(_ssp(self.filter1(near))) * cut[:, None])
        y = y.new_zeros(x.shape).index_add(0, sink, y)
        found: Tensor = x + self.out2(_ssp(self.out1(y)))
        return found


class SchNet(nn.Module):
    def __init__(self, M: int, layers: int = 6, c: int = 128, k: int = 50, reach: float = 10.0) -> None:
        super().__init__()
        self.count, self.k, self.reach = M, k, reach
        self.kind = nn.Embedding(100, c)
        self.h = nn.ModuleList(nn.ModuleDict({"mix": _Mix(c, k)}) for _ in range(layers))
        self.out1, self.out2 = nn.Linear(c, c // 2), nn.Linear(c // 2, 1)

    def forward(self, kind: Tensor, at: Tensor, source: Tensor, sink: Tensor, molecule: Tensor) -> Tensor:
        away = (((at[source] - at[sink]) ** 2).sum(1) + 1e-12).sqrt()
        places = torch.linspace(0, self.reach, self.k, device=at.device, dtype=at.dtype)
        near = (-0.5 * ((away[:, None] - places) / (self.reach / (self.k - 1))) ** 2).exp()
        cut = 0.5 * ((away * math.pi / self.reach).cos() + 1) * (away < self.reach)
        x = self.kind(kind)
        for each in self.h:
            x = each["mix"](x, near, cut, source, sink)
        energy = self.out2(_ssp(self.out1(x)))[:, 0]
        return energy.new_zeros(self.count).index_add(0, molecule, energy)


class _Splines(nn.Module):
    def __init__(self, d: int, out: int, grid: int, order: int) -> None:
        super().__init__()
        self.base, self.order = nn.Linear(d, out, bias=False), order
        self.weight = nn.Parameter(torch.randn(out, d, grid + order) * 0.1)
        self.scaler = nn.Parameter(torch.randn(out, d) * d**-0.5)
        knots = torch.arange(-order, grid + order + 1, dtype=torch.float64) * (2 / grid) - 1
        self.register_buffer("t", knots.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        t, each = self.t, x[:, :, None]
        y = ((each >= t[:-1]) & (each < t[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (each - t[: -k - 1]) / (t[k:-1] - t[: -k - 1])
            y = left * y[..., :-1] + (t[k + 1 :] - each) / (t[k + 1 :] - t[1:-k]) * y[..., 1:]
        found: Tensor = self.base(F.silu(x)) + F.linear(
            y.flatten(1), (self.weight * self.scaler[:, :, None]).flatten(1)
        )
        return found


class KAN(nn.Module):
    def __init__(self, hidden: int, grid: int = 5, order: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.first = _Splines(784, hidden, grid, order)
        self.second, self.third = _Splines(hidden, hidden, grid, order), _Splines(hidden, classes, grid, order)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.third(self.second(self.first(x)))
        return found
