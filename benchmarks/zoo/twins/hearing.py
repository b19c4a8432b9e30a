"""Twins of Conformer and EnCodec."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Relative(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.place = nn.Linear(d, d, bias=False)
        self.content, self.distance = (nn.Parameter(torch.randn(heads, 1, d // heads) * 0.02) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        count, d = x.shape[1:]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        slope = 10000.0 ** (-2.0 * torch.arange(d // 2, device=x.device, dtype=wide) / d)
        angle = torch.arange(count - 1, -count, -1, device=x.device, dtype=wide)[:, None] * slope
        place = self.place(torch.cat([angle.sin(), angle.cos()], 1))
        q, k, v, place = (
            y.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for y in (self.q(x), self.k(x), self.v(x), place)
        )
        far = F.pad((q + self.distance) @ place.mT, (1, 0))
        far = far.reshape(*far.shape[:2], 2 * count, count)[:, :, 1:].reshape(*far.shape[:3], 2 * count - 1)
        score = (q + self.content) @ k.mT + far[..., :count]
        y = (score * q.shape[-1] ** -0.5).softmax(3).to(v.dtype) @ v
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class _Feed(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.fc2(F.silu(self.fc1(self.norm(x))))
        return found


class _Convolution(nn.Module):
    def __init__(self, d: int, k: int) -> None:
        super().__init__()
        self.norm, self.batchnorm = nn.LayerNorm(d), nn.BatchNorm1d(d)
        self.wide, self.narrow = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 1)
        self.deep = nn.Conv1d(d, d, k, padding=k // 2, groups=d)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.wide(self.norm(x).mT), 1)
        found: Tensor = self.narrow(F.silu(self.batchnorm(self.deep(y)))).mT
        return found


class Conformer(nn.Module):
    def __init__(self, layers: int, d: int = 256, heads: int = 4, k: int = 31, words: int = 1024) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, d, 3, 2), nn.Conv2d(d, d, 3, 2)
        self.first, self.head = nn.Linear(19 * d, d), nn.Linear(d, words)
        self.h = nn.ModuleList()
        for _ in range(layers):
            parts: dict[str, nn.Module] = {"feed1": _Feed(d), "feed2": _Feed(d), "norm_attn": nn.LayerNorm(d)}
            parts |= {"attn": _Relative(d, heads), "conv": _Convolution(d, k), "norm": nn.LayerNorm(d)}
            self.h.append(nn.ModuleDict(parts))

    def forward(self, sound: Tensor) -> Tensor:
        x = self.conv2(self.conv1(sound[:, None]).relu()).relu()
        x = self.first(x.transpose(1, 2).flatten(2))
        for layer in self.h:
            x = x + 0.5 * layer["feed1"](x)
            x = x + layer["attn"](layer["norm_attn"](x))
            x = x + layer["conv"](x)
            x = layer["norm"](x + 0.5 * layer["feed2"](x))
        found: Tensor = self.head(x)
        return found


class _Causal(nn.Module):
    def __init__(self, c: int, out: int, k: int, stride: int = 1, up: bool = False) -> None:
        super().__init__()
        rows, columns = (c, out) if up else (out, c)
        self.g, self.v = nn.Parameter(torch.rand(rows, 1, 1) + 0.5), nn.Parameter(torch.randn(rows, columns, k))
        self.bias, self.stride, self.up = nn.Parameter(torch.zeros(out, 1)), stride, up

    def forward(self, x: Tensor) -> Tensor:
        weight = self.v * self.g / self.v.flatten(1).norm(dim=1)[:, None, None]
        if self.up:
            return F.conv_transpose1d(x, weight, stride=self.stride)[:, :, : self.stride * x.shape[2]] + self.bias
        room = weight.shape[2] - self.stride
        return F.conv1d(F.pad(x, (room, 0), mode="reflect") if room else x, weight, stride=self.stride) + self.bias


class _Residual(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.skip = _Causal(c, c // 2, 3), _Causal(c // 2, c, 1), _Causal(c, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.skip(x) + self.conv2(F.elu(self.conv1(F.elu(x))))
        return found


class _Recurrent(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(c, c, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.mT)
        return x + y.mT


class _Book(nn.Module):
    """Not trained."""

    def __init__(self, entries: int, d: int) -> None:
        super().__init__()
        self.register_buffer("book", torch.randn(entries, d))

    def forward(self, x: Tensor) -> Tensor:
        code = ((self.book**2).sum(1) - 2 * (x @ self.book.T)).argmin(2)
        return self.book[code]


class _Quantised(nn.Module):
    def __init__(self, books: int, entries: int, d: int) -> None:
        super().__init__()
        self.q = nn.ModuleList(_Book(entries, d) for _ in range(books))

    def forward(self, x: Tensor) -> Tensor:
        rest = x.detach()
        for each in self.q:
            rest = rest - each(rest)
        return x - rest


class EnCodec(nn.Module):
    def __init__(self, wide: int, d: int = 128, books: int = 8, entries: int = 1024) -> None:
        super().__init__()
        ratios = [2, 4, 5, 8]
        self.first, self.narrow = _Causal(1, wide, 7), _Causal(16 * wide, d, 7)
        self.second, self.last = _Causal(d, 16 * wide, 7), _Causal(wide, 1, 7)
        self.encoder, self.decoder = _Recurrent(16 * wide), _Recurrent(16 * wide)
        self.quantised = _Quantised(books, entries, d)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for i, r in enumerate(ratios):
            c, twice = 2**i * wide, 2 ** (i + 1) * wide
            self.down.append(nn.ModuleDict({"residual": _Residual(c), "conv": _Causal(c, twice, 2 * r, r)}))
            self.up.insert(0, nn.ModuleDict({"conv": _Causal(twice, c, 2 * r, r, True), "residual": _Residual(c)}))

    def forward(self, sound: Tensor) -> Tensor:
        x = self.first(sound)
        for each in self.down:
            x = each["conv"](F.elu(each["residual"](x)))
        x = self.narrow(F.elu(self.encoder(x)))
        x = self.decoder(self.second(self.quantised(x.mT).mT))
        for each in self.up:
            x = each["residual"](each["conv"](F.elu(x)))
        found: Tensor = self.last(F.elu(x))
        return found
