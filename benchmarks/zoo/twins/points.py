"""Twins of models of points, tables and graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class DLRM(nn.Module):
    def __init__(self, rows: int = 10_000, d: int = 64) -> None:
        super().__init__()
        self.bottom1, self.bottom2, self.bottom3 = nn.Linear(13, 512), nn.Linear(512, 256), nn.Linear(256, d)
        self.table = nn.ModuleList(nn.ModuleDict({"rows": nn.Embedding(rows, d)}) for _ in range(26))
        self.top1, self.top2, self.top3 = nn.Linear(d + 351, 512), nn.Linear(512, 256), nn.Linear(256, 1)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1), persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom3(self.bottom2(self.bottom1(dense).relu()).relu()).relu()
        z = torch.stack([x, *(each["rows"](ids[:, i]) for i, each in enumerate(self.table))], 1)
        y = torch.cat([x, (z @ z.mT)[:, self.pairs[0], self.pairs[1]]], 1)
        found: Tensor = self.top3(self.top2(self.top1(y).relu()).relu())[:, 0]
        return found


def _shared(c: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"conv": nn.Conv1d(c, out, 1), "batchnorm": nn.BatchNorm1d(out)})


def _dense(c: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"linear": nn.Linear(c, out), "batchnorm": nn.BatchNorm1d(out)})


def _through(layer: Any, x: Tensor) -> Tensor:
    for each in layer.values():
        x = each(x)
    return x


class Transform(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.s1, self.s2, self.s3 = _shared(c, 64), _shared(64, 128), _shared(128, 1024)
        self.d1, self.d2, self.last = _dense(1024, 512), _dense(512, 256), nn.Linear(256, c * c)

    def forward(self, x: Tensor) -> Tensor:
        c = x.shape[1]
        for each in (self.s1, self.s2, self.s3):
            x = _through(each, x).relu()
        x = x.amax(2)
        for each in (self.d1, self.d2):
            x = _through(each, x).relu()
        return self.last(x).unflatten(1, (c, c)) + torch.eye(c, dtype=x.dtype, device=x.device)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input, self.feature = Transform(3), Transform(64)
        self.s1, self.s2, self.s3 = _shared(3, 64), _shared(64, 128), _shared(128, 1024)
        self.d1, self.d2, self.head = _dense(1024, 512), _dense(512, 256), nn.Linear(256, 40)

    def forward(self, points: Tensor) -> Tensor:
        x = _through(self.s1, self.input(points).mT @ points).relu()
        x = _through(self.s2, self.feature(x).mT @ x).relu()
        x = _through(self.d1, _through(self.s3, x).amax(2)).relu()
        found: Tensor = self.head(_through(self.d2, x).relu())
        return found


class GCN(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden, bias=False), nn.Linear(hidden, classes, bias=False)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor, source: Tensor, sink: Tensor) -> Tensor:
        degree = x.new_ones(len(x)).index_add(0, sink, x.new_ones(len(sink)))
        scale = degree.rsqrt()[:, None]
        h = (_spread(self.first(x), source, sink, scale) + self.bias1).relu()
        return _spread(self.second(h), source, sink, scale) + self.bias2


def _spread(x: Tensor, source: Tensor, sink: Tensor, scale: Tensor) -> Tensor:
    y = x * scale
    return y.index_add(0, sink, y[source]) * scale
